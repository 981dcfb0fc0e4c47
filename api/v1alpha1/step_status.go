// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// StepStatus is the state of one step.
type StepStatus struct {
	// name of the step.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
	// phase is where the step is.
	// +required
	Phase StepPhase `json:"phase"`
	// attempt numbers the last attempt, from 1. Each new job of the step has a new number.
	// 0: none yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt,omitempty"`
	// doneBy is the name of the run that did the step, if spec.startFrom has it taken over from
	// that: this run had no attempt of it. Absent: this run does it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DoneBy string `json:"doneBy,omitempty"`
	// failures counts failed attempts; those in which the worker itself asked for a later retry
	// do not count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
	// jobID is "<run UID>/<step>/<item or ->/<attempt>" of the last attempt. Absent for a
	// step with forEach.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	JobID string `json:"jobID,omitempty"`
	// dispatchedAt is when the last attempt was decided, just before its job was published; of a
	// step with forEach, the last ones.
	// +optional
	DispatchedAt *metav1.MicroTime `json:"dispatchedAt,omitempty"`
	// startedAt is when the worker of the last attempt said Started, when an approval began to
	// wait, or when a delay, a child run or a step with forEach began.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// completedAt is when the step ended.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// delayedUntil is when a delay ends.
	// +optional
	DelayedUntil *metav1.MicroTime `json:"delayedUntil,omitempty"`
	// approval is who decided what, when an approval was decided.
	// +optional
	Approval *ApprovalStatus `json:"approval,omitempty"`
	// forEach is the state of the items, if the step has forEach and began.
	// +optional
	ForEach *ForEachStatus `json:"forEach,omitempty"`
	// nextAttemptAt is when a backing-off step is tried again.
	// +optional
	NextAttemptAt *metav1.MicroTime `json:"nextAttemptAt,omitempty"`
	// outputRef is where the worker's output is, if it is too large or too deep for status.
	// +optional
	OutputRef *OutputReference `json:"outputRef,omitempty"`
	// output is what the worker, the approver or the child run returned: any JSON value of at most
	// 4 KiB. A larger one, or one more than 100 deep, is in outputRef.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Output *runtime.RawExtension `json:"output,omitempty"`
	// childRun names the run of a step that is a child run, from when the step starts.
	// +optional
	ChildRun *ChildRunStatus `json:"childRun,omitempty"`
	// locks are those of the step, while it is under way.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Locks []LockHold `json:"locks,omitempty"`
	// lockWait says that the step could begin, and waits for its locks. Absent: it does not.
	// +optional
	LockWait *LocksWait `json:"lockWait,omitempty"`
	// error is why the last failed attempt, or the step, failed.
	// +optional
	Error *StepError `json:"error,omitempty"`
	// deadLetter is why the answer to the attempt in flight was put aside as a dead letter. It is
	// written before that is done. The attempt goes to no other worker: its time-out ends it, or
	// its answer if somebody redrives it. Absent: none was put aside, or the attempt is over.
	// +optional
	DeadLetter DeadLetterReason `json:"deadLetter,omitempty"`
}

// OutputReference refers to an output in the object store of the operator's NATS.
type OutputReference struct {
	// name of the object: "<job id>/<hexadecimal SHA-256>".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// digest of the object's bytes: "sha256:" and 64 hexadecimal digits.
	// +required
	// +kubebuilder:validation:MinLength=71
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest"`
	// size of the output's JSON text in bytes.
	// +required
	// +kubebuilder:validation:Minimum=0
	Size int64 `json:"size"`
}

// StepError is why an attempt or a step failed.
type StepError struct {
	// code is a word to program against: the worker's own, or one of Timeout, StartTimeout,
	// ExpressionError, InputTooLarge, OutputTooLarge, OutputLost, ResultRejected, AttemptsExceeded,
	// RetryRequested (the worker asked for a retry, and named no error), Unspecified (it failed
	// without a code), Rejected (by an approver), ApprovalTimeout, or of a child run ChildFailed,
	// ChildCancelled, ChildTimedOut, ChildDeleted, NameTaken, InvalidSpec, or of its locks
	// LockBusy, LockQueueFull, LockQueueTimeout, Superseded, LockDeadlock, LockUnusable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Code string `json:"code"`
	// message is for people. Cut at 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ApprovalStatus is a decision about an approval.
type ApprovalStatus struct {
	// decision is Approve or Reject.
	// +required
	Decision ApprovalDecision `json:"decision"`
	// approver is the user who created the StepApproval. Absent: nobody decided in time.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Approver string `json:"approver,omitempty"`
	// name of the StepApproval. Absent: nobody decided in time.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// comment of the approver.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Comment string `json:"comment,omitempty"`
	// decidedAt is when the StepApproval was created, or when the time was over.
	// +required
	DecidedAt metav1.MicroTime `json:"decidedAt"`
}
