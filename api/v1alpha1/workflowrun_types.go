// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WorkflowRun is one execution of a DAG of steps. Each step is a job that a long-lived worker
// takes over NATS.
//
// spec.inputs, spec.steps, spec.finally and spec.outputs are compared only in writes that leave
// status.fence and status.progress as they were. The API server takes spec from the stored
// object in a write of status, and status from the stored object in any other write, so a write
// in which the status differs cannot change spec; comparing 200 steps would cost more than a
// fifth of it (ADR 0002).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wfr,categories=syncopate
// +kubebuilder:selectablefield:JSONPath=`.status.tenant`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.workloadClass`
// +kubebuilder:selectablefield:JSONPath=`.spec.workflowRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Steps",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.status.tenant`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.workloadClass`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Fence",type=integer,priority=1,JSONPath=`.status.fence`
// +kubebuilder:printcolumn:name="Policy",type=string,priority=1,JSONPath=`.status.policy.name`
// +kubebuilder:printcolumn:name="Holder",type=string,priority=1,JSONPath=`.status.lock.holder`
// +kubebuilder:printcolumn:name="Lag",type=integer,priority=1,JSONPath=`.status.checkpoint.lagMillis`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.inputs) == has(oldSelf.spec.inputs) && (!has(self.spec.inputs) || self.spec.inputs == oldSelf.spec.inputs))",fieldPath=".spec.inputs",message="spec.inputs is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.steps) == has(oldSelf.spec.steps) && (!has(self.spec.steps) || self.spec.steps == oldSelf.spec.steps))",fieldPath=".spec.steps",message="spec.steps is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.finally) == has(oldSelf.spec.finally) && (!has(self.spec.finally) || self.spec.finally == oldSelf.spec.finally))",fieldPath=".spec.finally",message="spec.finally is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.outputs) == has(oldSelf.spec.outputs) && (!has(self.spec.outputs) || self.spec.outputs == oldSelf.spec.outputs))",fieldPath=".spec.outputs",message="spec.outputs is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="self.spec.priority == oldSelf.spec.priority || !has(oldSelf.status) || !has(oldSelf.status.admission) || !has(oldSelf.status.admission.admittedAt)",fieldPath=".spec.priority",message="spec.priority cannot change after the run was admitted"
type WorkflowRun struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to run; immutable but for suspend, shutdown, ttlSecondsAfterFinished, and
	// priority until the run is admitted. Written by the user.
	// +required
	Spec WorkflowRunSpec `json:"spec"`
	// status is what happened so far. Written only by the operator, under the run lock's fence.
	// Until it has been, observedGeneration is -1, so that tools do not take a run for done at
	// which nobody has looked.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status *WorkflowRunStatus `json:"status,omitempty"`
}

// WorkflowRunList is a list of runs.
//
// +kubebuilder:object:root=true
type WorkflowRunList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the runs.
	Items []WorkflowRun `json:"items"`
}

// ShutdownMode says whether and how a run is to be ended early.
//
// +kubebuilder:validation:Enum=Cancel;Terminate
type ShutdownMode string

const (
	// ShutdownCancel ends the run as Cancelled: queued jobs are withdrawn, workers in the middle of
	// a job are told to stop, then the steps of spec.finally run.
	ShutdownCancel ShutdownMode = "Cancel"
	// ShutdownTerminate ends the run as Cancelled at once: the steps of spec.finally do not
	// run, or stop.
	ShutdownTerminate ShutdownMode = "Terminate"
)

// WorkflowRunSpec is what to run.
//
// Rules that compare with the old object stand here, on the parent, so that they also see
// a field's removal.
//
// +kubebuilder:validation:XValidation:rule="has(self.steps) != has(self.workflowRef)",message="exactly one source of steps is needed: set spec.steps or spec.workflowRef"
// +kubebuilder:validation:XValidation:rule="!has(self.workflowRef) || !(has(self.finally) || has(self.outputs) || has(self.locks) || has(self.activeDeadlineSeconds) || self.maxParallelSteps != 20 || self.finallyTimeoutSeconds != 300)",fieldPath=".workflowRef",message="finally, outputs, locks, activeDeadlineSeconds, maxParallelSteps and finallyTimeoutSeconds are those of the Workflow: leave them out beside spec.workflowRef"
// +kubebuilder:validation:XValidation:rule="has(self.workflowRef) == has(oldSelf.workflowRef) && (!has(self.workflowRef) || self.workflowRef == oldSelf.workflowRef)",fieldPath=".workflowRef",message="spec.workflowRef is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="self.workloadClass == oldSelf.workloadClass",fieldPath=".workloadClass",message="spec.workloadClass is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.tenant) == has(oldSelf.tenant) && (!has(self.tenant) || self.tenant == oldSelf.tenant)",fieldPath=".tenant",message="spec.tenant is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.idempotencyKey) == has(oldSelf.idempotencyKey) && (!has(self.idempotencyKey) || self.idempotencyKey == oldSelf.idempotencyKey)",fieldPath=".idempotencyKey",message="spec.idempotencyKey is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.queueTimeoutSeconds) == has(oldSelf.queueTimeoutSeconds) && (!has(self.queueTimeoutSeconds) || self.queueTimeoutSeconds == oldSelf.queueTimeoutSeconds)",fieldPath=".queueTimeoutSeconds",message="spec.queueTimeoutSeconds is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.activeDeadlineSeconds) == has(oldSelf.activeDeadlineSeconds) && (!has(self.activeDeadlineSeconds) || self.activeDeadlineSeconds == oldSelf.activeDeadlineSeconds)",fieldPath=".activeDeadlineSeconds",message="spec.activeDeadlineSeconds is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="self.finallyTimeoutSeconds == oldSelf.finallyTimeoutSeconds",fieldPath=".finallyTimeoutSeconds",message="spec.finallyTimeoutSeconds is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.locks) == has(oldSelf.locks) && (!has(self.locks) || self.locks == oldSelf.locks)",fieldPath=".locks",message="spec.locks is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="self.maxParallelSteps == oldSelf.maxParallelSteps",fieldPath=".maxParallelSteps",message="spec.maxParallelSteps is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.shutdown) || (has(self.shutdown) && (self.shutdown == oldSelf.shutdown || self.shutdown == 'Terminate'))",message="spec.shutdown goes one way: unset, Cancel, Terminate; it cannot be taken back"
type WorkflowRunSpec struct {
	// workloadClass picks the LockPolicy that governs the run: the one that lists this class, else
	// the one that lists "*", else built-in defaults. Written by the user; default "default".
	// +optional
	// +default="default"
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	WorkloadClass string `json:"workloadClass,omitempty"`
	// tenant is whom the run is accounted to. Absent: the namespace's label syncopate.dev/tenant,
	// else its name. Another tenant must be listed in the namespace's annotation
	// syncopate.dev/allowed-tenants, else the run ends as TenantNotAllowed. Written by the user;
	// pinned in status.tenant when the run is first seen.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Tenant string `json:"tenant,omitempty"`
	// priority decides who of a tenant's waiting runs is admitted first: the highest, then the
	// oldest. It may be changed until the run is admitted. Written by the user; default 0.
	// +optional
	// +default=0
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`
	// idempotencyKey names the work: of a tenant's runs with the same key the first one runs, for
	// as long as it exists; others end as DuplicateRun, or as IdempotencyConflict if their spec
	// differs. Written by the user; absent: no such check.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._:/@+=-]+$`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// suspend true stops new jobs; running jobs finish and their results are applied; deadlines go
	// on. May be changed at any time. Absent means false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// shutdown ends the run early: Cancel, or Terminate, which skips clean-up. One-way: it can be
	// upgraded, never taken back.
	// Absent: the run goes on.
	// +optional
	Shutdown ShutdownMode `json:"shutdown,omitempty"`
	// queueTimeoutSeconds bounds, in seconds, the time from when the run is first seen, not
	// suspended, until it is admitted. Past it the run ends as TimedOut with reason QueueTimeout.
	// Absent: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	QueueTimeoutSeconds *int32 `json:"queueTimeoutSeconds,omitempty"`
	// activeDeadlineSeconds bounds, in seconds, the time from admission to the end of spec.steps,
	// suspended time included. Past it the run ends as TimedOut with reason DeadlineExceeded, after
	// the steps of spec.finally. Absent: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`
	// finallyTimeoutSeconds bounds, in seconds, the steps of spec.finally together, from when
	// the run has nothing else to do. Past it those that are not over are cancelled and the run
	// ends. Default 300.
	// +optional
	// +default=300
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	FinallyTimeoutSeconds int32 `json:"finallyTimeoutSeconds,omitempty"`
	// ttlSecondsAfterFinished is how long, in seconds, the finished run is kept before the
	// operator deletes it. May be changed at any time. Absent: kept until somebody deletes it. 0:
	// deleted at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// maxParallelSteps is how many steps may be with workers, or be child runs under way, at the
	// same time. The steps of a child count for the child. Default 20.
	// +optional
	// +default=20
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	MaxParallelSteps int32 `json:"maxParallelSteps,omitempty"`
	// locks are held from the admission of the run to its end, clean-up included: all are taken
	// together, or none, and a run that waits for one holds none. Their keys may read inputs and
	// run. Not in a child run, which is inside the locks of the run at the top. At most 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Locks []LockRequest `json:"locks,omitempty"`
	// workflowRef names the Workflow that the run follows, in place of steps and what belongs to
	// them. It is resolved once, when the run is first seen; status.workflow says to what.
	// +optional
	WorkflowRef *WorkflowReference `json:"workflowRef,omitempty"`
	// inputs is a JSON object that expressions read as inputs.NAME. At most 64 KiB. With
	// workflowRef they are checked against the parameters of the Workflow. Absent means {}.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Inputs *runtime.RawExtension `json:"inputs,omitempty"`
	// steps is the DAG: a step starts when all steps that it depends on are over, and none
	// of them failed without onFailure Continue. 1 to 200 steps; names are unique in steps
	// and finally together.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || [self.map(s, s.name)].all(names, names.all(n, names.exists_one(m, m == n)))",optionalOldSelf=true,message="step names must be unique"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(s, [has(s.job), has(s.approval), has(s.delay), has(s.run)].exists_one(k, k))",optionalOldSelf=true,message="each step needs exactly one of job, approval, delay and run"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(s, !has(s.forEach) || has(s.job))",optionalOldSelf=true,message="forEach needs a job"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(s, !has(s.forEach) || !has(s.locks))",optionalOldSelf=true,message="a step with forEach has no locks"
	Steps []Step `json:"steps,omitempty"`
	// finally are steps that run when all others are over, whether the run succeeded, failed, was
	// cancelled or is out of time; not if it was terminated or never admitted. They are jobs or
	// delays, and depend on each other only. Their expressions see all steps of the run, and how it
	// ended in run.phase, run.reason and run.message. If one fails, a run that would have succeeded
	// fails. At most 20. Absent: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(s, !has(s.forEach) || has(s.job))",optionalOldSelf=true,message="forEach needs a job"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(s, !has(s.forEach) || !has(s.locks))",optionalOldSelf=true,message="a step with forEach has no locks"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(s, [has(s.job), has(s.delay)].exists_one(k, k) && !has(s.approval) && !has(s.run))",optionalOldSelf=true,message="each finally step needs exactly one of job and delay"
	Finally []Step `json:"finally,omitempty"`
	// outputs is a JSON object that the run returns in status.outputs when its steps have
	// succeeded, whatever becomes of its finally steps. Strings in it may hold ${...} CEL
	// expressions over inputs, run and all steps; a string that is one whole expression keeps the
	// type of its value. At most 64 KiB before evaluation. If it cannot be evaluated the run fails
	// as OutputsFailed. Absent: none.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Outputs *runtime.RawExtension `json:"outputs,omitempty"`
}

// Step is one node of the DAG: a job, an approval, a delay or a child run. Defaults of its fields
// are not stored: steps are one value in server-side apply, and who applies a manifest again must
// find in it what he wrote (ADR 35).
type Step struct {
	// name identifies the step in the run; expressions read it as steps.NAME, or steps["NAME"]
	// where the name has a dash.
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
	// none, before anything of the step begins. Not with forEach. At most 8.
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
	// Past it the attempt failed with code Timeout. Default 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// startTimeoutSeconds bounds, in seconds, the time from an attempt's dispatch until its worker
	// says Started. A worker that never says so must answer within this time. Past it the attempt
	// failed with code StartTimeout. Default 3600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	StartTimeoutSeconds int32 `json:"startTimeoutSeconds,omitempty"`
	// retry says how often and when a failed attempt of a job is tried again.
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
type Delay struct {
	// seconds is how long to wait, from when the step starts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	Seconds *int32 `json:"seconds,omitempty"`
	// until is the time to wait for. One before the creation of the run is refused; one that has
	// come when the step starts ends it at once.
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
