// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Step is one node of the DAG: a job, an approval, a delay or a child run. Defaults of its fields
// are not stored: steps are one value in server-side apply, and who applies a manifest again must
// find in it what he wrote (ADR 35).
type Step struct {
	// name identifies the step in the run; expressions read it as steps.NAME, or steps["NAME"]
	// where the name has a dash or begins with a digit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	Name string `json:"name"`
	// dependsOn names the steps that must be over before this one starts: succeeded, skipped, or
	// failed with onFailure Continue. At most 50. Absent: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=40
	DependsOn []string `json:"dependsOn,omitempty"`
	// when is a CEL expression of type bool over inputs, steps and run, evaluated once when the
	// step could start; false skips the step. At most 1024 characters. Absent means true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	When string `json:"when,omitempty"`
	// job is work that a worker does.
	// +optional
	Job *Job `json:"job,omitempty"`
	// forEach makes the step one job for each item of a list. Expressions in job.input read the
	// item as item. Absent: one job.
	// +optional
	ForEach *ForEach `json:"forEach,omitempty"`
	// approval waits until somebody decides.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
	// delay waits for a time.
	// +optional
	Delay *Delay `json:"delay,omitempty"`
	// run is a run of its own, with steps and outputs. Not in spec.finally.
	// +optional
	Run *ChildRun `json:"run,omitempty"`
	// locks are held while the step is under way, its retries included: all are taken together, or
	// none, before anything of the step begins. At most 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Locks []LockRequest `json:"locks,omitempty"`
	// onFailure says what a failure of this step means for its run. FailRun: the run fails.
	// Continue: it goes on, and so do the steps that depend on this one; they see its phase and
	// error. Default FailRun.
	// +optional
	OnFailure FailureAction `json:"onFailure,omitempty"`
	// timeoutSeconds bounds, in seconds, one attempt of a job, from when its worker says Started.
	// Past it the attempt failed with code Timeout. For jobs only: at other steps it does nothing;
	// an approval has approval.timeoutSeconds, and a child run an activeDeadlineSeconds of its own.
	// Default 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// startTimeoutSeconds bounds, in seconds, the time from an attempt's dispatch until its worker
	// says Started. A worker that never says so must answer within this time. Past it the attempt
	// failed with code StartTimeout. For jobs only: at other steps it does nothing. Default 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	StartTimeoutSeconds int32 `json:"startTimeoutSeconds,omitempty"`
	// retry says how often and when a failed attempt of a job is tried again. For jobs only: at
	// other steps it does nothing.
	// +optional
	Retry Retry `json:"retry,omitempty"`
}

// FailureAction says what a failed step means for its run.
//
// +kubebuilder:validation:Enum=FailRun;Continue
type FailureAction string

const (
	// FailRun makes the run fail, once its finally steps are over.
	FailRun FailureAction = "FailRun"
	// FailureContinue lets the run and the steps that depend on the failed one go on.
	FailureContinue FailureAction = "Continue"
)

// Approval is a step that waits for a person, or for a program with the permission. Creating a
// StepApproval decides it.
type Approval struct {
	// message tells the approver what is asked. Plain text. Absent: nothing but the name
	// of the step.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// timeoutSeconds bounds, in seconds, the wait from when the step asks. Absent: no bound but
	// that of the run.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// onTimeout is the decision when nobody decided in time. Default Reject.
	// +optional
	OnTimeout ApprovalDecision `json:"onTimeout,omitempty"`
}

// ApprovalDecision is yes or no.
//
// +kubebuilder:validation:Enum=Approve;Reject
type ApprovalDecision string

const (
	// Approve lets the step succeed.
	Approve ApprovalDecision = "Approve"
	// Reject makes the step fail with code Rejected.
	Reject ApprovalDecision = "Reject"
)

// Delay is a step that waits for a time and then succeeds.
//
// +kubebuilder:validation:XValidation:rule="has(self.seconds) != has(self.until)",message="a delay needs exactly one of seconds and until"
// +kubebuilder:validation:XValidation:rule="!has(self.until) || self.until >= timestamp('2000-01-01T00:00:00Z') && self.until <= timestamp('9999-12-31T23:59:59Z')",fieldPath=".until",message="until is not in the years 2000 to 9999 of UTC"
type Delay struct {
	// seconds is how long to wait, from when the step starts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	Seconds *int32 `json:"seconds,omitempty"`
	// until is the time to wait for, of the years 2000 to 9999 in UTC. One that has come when the
	// step starts ends it at once. One before the creation of the run is refused, but where many
	// runs have the same steps: in those of a Workflow or a Schedule, with startFrom, and in a
	// child run that is created later than it.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// Job is work for one worker.
type Job struct {
	// topic names the kind of work; workers of that topic take the job. Words of a-z, 0-9 and
	// dashes, joined by dots.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+(\.[a-z0-9-]+)*$`
	Topic string `json:"topic"`
	// input is a JSON object given to the worker. Strings in it may hold ${...} CEL expressions
	// over inputs, steps, run and item; a string that is one whole expression keeps the type of its
	// value. At most 64 KiB before and 256 KiB after evaluation. Absent means {}.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Input *runtime.RawExtension `json:"input,omitempty"`
}

// Retry says how often and when a failed attempt is tried again.
type Retry struct {
	// onCodes lists the error codes after which an attempt is tried again: a worker's own, or
	// Timeout and StartTimeout. Other failures fail the step at once. A worker can always forbid a
	// retry of its failure. At most 20. Absent: all codes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	OnCodes []string `json:"onCodes,omitempty"`
	// maxFailures is the number of failed attempts with which the step fails; 1 means no
	// retry. Default 3.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxFailures int32 `json:"maxFailures,omitempty"`
	// backoff is the wait before the next attempt.
	// +optional
	Backoff Backoff `json:"backoff,omitempty"`
}

// Backoff is an exponential wait: after failure n it is min(maxMillis, initialMillis *
// (factorPercent/100)^(n-1)), spread uniformly by +-jitterPercent.
type Backoff struct {
	// initialMillis is the wait after the first failure, in milliseconds. Default 1000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400000
	InitialMillis *int64 `json:"initialMillis,omitempty"`
	// factorPercent multiplies the wait with each failure, in percent: 200 doubles it, 100 keeps
	// it. Default 200.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	FactorPercent int32 `json:"factorPercent,omitempty"`
	// maxMillis caps the wait before jitter, in milliseconds. Default 60000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400000
	MaxMillis *int64 `json:"maxMillis,omitempty"`
	// jitterPercent spreads the wait uniformly by this share to both sides. Default 20.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	JitterPercent *int32 `json:"jitterPercent,omitempty"`
}
