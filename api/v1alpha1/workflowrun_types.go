package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WorkflowRun is one execution of a DAG of steps. Each step is a job that a long-lived worker takes over NATS.
//
// spec.inputs and spec.steps are compared only in writes that leave status.fence and status.progress as they were. The API server
// takes spec from the stored object in a write of status, and status from the stored object in any other write, so a write in
// which the status differs cannot change spec; comparing 200 steps would cost more than a fifth of it (ADR 0002).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wfr,categories=syncopate
// +kubebuilder:selectablefield:JSONPath=`.status.tenant`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.workloadClass`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Steps",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.status.tenant`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.workloadClass`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Fence",type=integer,priority=1,JSONPath=`.status.fence`
// +kubebuilder:printcolumn:name="Policy",type=string,priority=1,JSONPath=`.status.policy.name`
// +kubebuilder:printcolumn:name="Holder",type=string,priority=1,JSONPath=`.status.lock.holder`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status cannot be removed: it carries the fence"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.inputs) == has(oldSelf.spec.inputs) && (!has(self.spec.inputs) || self.spec.inputs == oldSelf.spec.inputs))",fieldPath=".spec.inputs",message="spec.inputs is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.steps) == has(oldSelf.spec.steps) && (!has(self.spec.steps) || self.spec.steps == oldSelf.spec.steps))",fieldPath=".spec.steps",message="spec.steps is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="self.spec.priority == oldSelf.spec.priority || !has(oldSelf.status) || !has(oldSelf.status.admission) || !has(oldSelf.status.admission.admittedAt)",fieldPath=".spec.priority",message="spec.priority cannot change after the run was admitted"
type WorkflowRun struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to run; immutable but for suspend, shutdown, ttlSecondsAfterFinished, and priority until the run is admitted. Written by the user.
	// +required
	Spec WorkflowRunSpec `json:"spec"`
	// status is what happened so far. Written only by the operator, under the run lock's fence.
	// +optional
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
	// ShutdownCancel ends the run as Cancelled: queued jobs are withdrawn, workers in the middle of a job are told to stop.
	ShutdownCancel ShutdownMode = "Cancel"
	// ShutdownTerminate ends the run as Cancelled at once, skipping whatever Cancel would still run.
	ShutdownTerminate ShutdownMode = "Terminate"
)

// WorkflowRunSpec is what to run.
//
// Rules that compare with the old object stand here, on the parent, so that they also see a field's removal.
//
// +kubebuilder:validation:XValidation:rule="has(self.steps)",message="exactly one source of steps is needed: set spec.steps"
// +kubebuilder:validation:XValidation:rule="self.workloadClass == oldSelf.workloadClass",fieldPath=".workloadClass",message="spec.workloadClass is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.tenant) == has(oldSelf.tenant) && (!has(self.tenant) || self.tenant == oldSelf.tenant)",fieldPath=".tenant",message="spec.tenant is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.idempotencyKey) == has(oldSelf.idempotencyKey) && (!has(self.idempotencyKey) || self.idempotencyKey == oldSelf.idempotencyKey)",fieldPath=".idempotencyKey",message="spec.idempotencyKey is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.queueTimeoutSeconds) == has(oldSelf.queueTimeoutSeconds) && (!has(self.queueTimeoutSeconds) || self.queueTimeoutSeconds == oldSelf.queueTimeoutSeconds)",fieldPath=".queueTimeoutSeconds",message="spec.queueTimeoutSeconds is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="has(self.activeDeadlineSeconds) == has(oldSelf.activeDeadlineSeconds) && (!has(self.activeDeadlineSeconds) || self.activeDeadlineSeconds == oldSelf.activeDeadlineSeconds)",fieldPath=".activeDeadlineSeconds",message="spec.activeDeadlineSeconds is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="self.maxParallelSteps == oldSelf.maxParallelSteps",fieldPath=".maxParallelSteps",message="spec.maxParallelSteps is immutable: create a new run instead"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.shutdown) || (has(self.shutdown) && (self.shutdown == oldSelf.shutdown || self.shutdown == 'Terminate'))",message="spec.shutdown goes one way: unset, Cancel, Terminate; it cannot be taken back"
type WorkflowRunSpec struct {
	// workloadClass picks the LockPolicy that governs the run: the one that lists this class, else the one that lists "*",
	// else built-in defaults. Written by the user; default "default".
	// +optional
	// +default="default"
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	WorkloadClass string `json:"workloadClass,omitempty"`
	// tenant is whom the run is accounted to. Absent: the namespace's label syncopate.dev/tenant, else its name.
	// Another tenant must be listed in the namespace's annotation syncopate.dev/allowed-tenants, else the run ends as
	// TenantNotAllowed. Written by the user; pinned in status.tenant when the run is first seen.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Tenant string `json:"tenant,omitempty"`
	// priority decides who of a tenant's waiting runs is admitted first: the highest, then the oldest. It may be changed until
	// the run is admitted. Written by the user; default 0.
	// +optional
	// +default=0
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`
	// idempotencyKey names the work: of a tenant's runs with the same key the first one runs, for as long as it exists; others end
	// as DuplicateRun, or as IdempotencyConflict if their spec differs. Written by the user; absent: no such check.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._:/@+=-]+$`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// suspend true stops new jobs; running jobs finish and their results are applied; deadlines go on. May be changed at any time.
	// Absent means false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// shutdown ends the run early: Cancel, or Terminate, which skips clean-up. One-way: it can be upgraded, never taken back.
	// Absent: the run goes on.
	// +optional
	Shutdown ShutdownMode `json:"shutdown,omitempty"`
	// queueTimeoutSeconds bounds, in seconds, the time from when the run is first seen, not suspended, until it is admitted.
	// Past it the run ends as TimedOut with reason QueueTimeout. Absent: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	QueueTimeoutSeconds *int32 `json:"queueTimeoutSeconds,omitempty"`
	// activeDeadlineSeconds bounds, in seconds, the time from admission to the end of the run, suspended time included.
	// Past it the run ends as TimedOut with reason DeadlineExceeded. Absent: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`
	// ttlSecondsAfterFinished is how long, in seconds, the finished run is kept before the operator deletes it.
	// May be changed at any time. Absent: kept until somebody deletes it. 0: deleted at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// maxParallelSteps is how many steps may be with workers at the same time. Default 20.
	// +optional
	// +default=20
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	MaxParallelSteps int32 `json:"maxParallelSteps,omitempty"`
	// inputs is a JSON object that expressions read as inputs.NAME. At most 64 KiB. Absent means {}.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Inputs *runtime.RawExtension `json:"inputs,omitempty"`
	// steps is the DAG: a step starts when all steps that it depends on have succeeded or were skipped. 1 to 200 steps;
	// names are unique. Optional in the schema because other sources of steps may come.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || [self.map(s, s.name)].all(names, names.all(n, names.exists_one(m, m == n)))",optionalOldSelf=true,message="step names must be unique"
	Steps []Step `json:"steps,omitempty"`
}

// Step is one node of the DAG.
type Step struct {
	// name identifies the step in the run; expressions read it as steps.NAME, or steps["NAME"] where the name has a dash.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	Name string `json:"name"`
	// dependsOn names the steps that must have succeeded or been skipped before this one starts. At most 50. Absent: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=40
	DependsOn []string `json:"dependsOn,omitempty"`
	// when is a CEL expression of type bool over inputs, steps and run, evaluated once when the step could start; false skips
	// the step. At most 1024 characters. Absent means true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	When string `json:"when,omitempty"`
	// job is the work that a worker does.
	// +required
	Job Job `json:"job"`
	// timeoutSeconds bounds, in seconds, one attempt, from when its worker says Started. Past it the attempt failed with code
	// Timeout. Default 3600.
	// +optional
	// +default=3600
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// startTimeoutSeconds bounds, in seconds, the time from an attempt's dispatch until its worker says Started. A worker that
	// never says so must answer within this time. Past it the attempt failed with code StartTimeout. Default 3600.
	// +optional
	// +default=3600
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	StartTimeoutSeconds int32 `json:"startTimeoutSeconds,omitempty"`
	// retry says how often and when a failed attempt is tried again.
	// +optional
	// +kubebuilder:default={}
	Retry Retry `json:"retry,omitempty"`
}

// Job is work for one worker.
type Job struct {
	// topic names the kind of work; workers of that topic take the job. Words of a-z, 0-9 and dashes, joined by dots.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+(\.[a-z0-9-]+)*$`
	Topic string `json:"topic"`
	// input is a JSON object given to the worker. Strings in it may hold ${...} CEL expressions over inputs, steps and run; a
	// string that is one whole expression keeps the type of its value. At most 64 KiB before and 256 KiB after evaluation.
	// Absent means {}.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Input *runtime.RawExtension `json:"input,omitempty"`
}

// Retry says how often and when a failed attempt is tried again.
type Retry struct {
	// maxFailures is the number of failed attempts with which the step fails; 1 means no retry. Default 3.
	// +optional
	// +default=3
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxFailures int32 `json:"maxFailures,omitempty"`
	// backoff is the wait before the next attempt.
	// +optional
	// +kubebuilder:default={}
	Backoff Backoff `json:"backoff,omitempty"`
}

// Backoff is an exponential wait: after failure n it is min(maxMillis, initialMillis * (factorPercent/100)^(n-1)),
// spread uniformly by +-jitterPercent.
type Backoff struct {
	// initialMillis is the wait after the first failure, in milliseconds. Default 1000.
	// +optional
	// +default=1000
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400000
	InitialMillis *int64 `json:"initialMillis,omitempty"`
	// factorPercent multiplies the wait with each failure, in percent: 200 doubles it, 100 keeps it. Default 200.
	// +optional
	// +default=200
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1000
	FactorPercent int32 `json:"factorPercent,omitempty"`
	// maxMillis caps the wait before jitter, in milliseconds. Default 60000.
	// +optional
	// +default=60000
	// +kubebuilder:default=60000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400000
	MaxMillis *int64 `json:"maxMillis,omitempty"`
	// jitterPercent spreads the wait uniformly by this share to both sides. Default 20.
	// +optional
	// +default=20
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	JitterPercent *int32 `json:"jitterPercent,omitempty"`
}
