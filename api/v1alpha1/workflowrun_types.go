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
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.inputs) == has(oldSelf.spec.inputs) && (!has(self.spec.inputs) || self.spec.inputs == oldSelf.spec.inputs))",fieldPath=".spec.inputs",message="spec.inputs is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.steps) == has(oldSelf.spec.steps) && (!has(self.spec.steps) || self.spec.steps == oldSelf.spec.steps))",fieldPath=".spec.steps",message="spec.steps is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.finally) == has(oldSelf.spec.finally) && (!has(self.spec.finally) || self.spec.finally == oldSelf.spec.finally))",fieldPath=".spec.finally",message="spec.finally is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.status) != has(oldSelf.status) || (has(self.status) && (self.status.?fence.orValue(0) != oldSelf.status.?fence.orValue(0) || (has(self.status.progress) && has(oldSelf.status.progress) && self.status.progress != oldSelf.status.progress))) || (has(self.spec.outputs) == has(oldSelf.spec.outputs) && (!has(self.spec.outputs) || self.spec.outputs == oldSelf.spec.outputs))",fieldPath=".spec.outputs",message="spec.outputs is immutable: delete the run first, or give another name"
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
// +kubebuilder:validation:XValidation:rule="has(self.workflowRef) == has(oldSelf.workflowRef) && (!has(self.workflowRef) || self.workflowRef == oldSelf.workflowRef)",fieldPath=".workflowRef",message="spec.workflowRef is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="self.workloadClass == oldSelf.workloadClass",fieldPath=".workloadClass",message="spec.workloadClass is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.tenant) == has(oldSelf.tenant) && (!has(self.tenant) || self.tenant == oldSelf.tenant)",fieldPath=".tenant",message="spec.tenant is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.idempotencyKey) == has(oldSelf.idempotencyKey) && (!has(self.idempotencyKey) || self.idempotencyKey == oldSelf.idempotencyKey)",fieldPath=".idempotencyKey",message="spec.idempotencyKey is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.startFrom) == has(oldSelf.startFrom) && (!has(self.startFrom) || self.startFrom == oldSelf.startFrom)",fieldPath=".startFrom",message="spec.startFrom is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.queueTimeoutSeconds) == has(oldSelf.queueTimeoutSeconds) && (!has(self.queueTimeoutSeconds) || self.queueTimeoutSeconds == oldSelf.queueTimeoutSeconds)",fieldPath=".queueTimeoutSeconds",message="spec.queueTimeoutSeconds is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.activeDeadlineSeconds) == has(oldSelf.activeDeadlineSeconds) && (!has(self.activeDeadlineSeconds) || self.activeDeadlineSeconds == oldSelf.activeDeadlineSeconds)",fieldPath=".activeDeadlineSeconds",message="spec.activeDeadlineSeconds is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="self.finallyTimeoutSeconds == oldSelf.finallyTimeoutSeconds",fieldPath=".finallyTimeoutSeconds",message="spec.finallyTimeoutSeconds is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="has(self.locks) == has(oldSelf.locks) && (!has(self.locks) || self.locks == oldSelf.locks)",fieldPath=".locks",message="spec.locks is immutable: delete the run first, or give another name"
// +kubebuilder:validation:XValidation:rule="self.maxParallelSteps == oldSelf.maxParallelSteps",fieldPath=".maxParallelSteps",message="spec.maxParallelSteps is immutable: delete the run first, or give another name"
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
	// oldest. It orders the runs and steps that wait for a Semaphore or a mutex, too, those of
	// child runs included. It may be changed until the run is admitted; what it is then counts for
	// the runs below it. Written by the user; default 0.
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
	// startFrom names a run that has ended and did the same work: what is done there is not done
	// again. Written by the user; absent: all steps are done.
	// +optional
	StartFrom *StartFrom `json:"startFrom,omitempty"`
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
	// operator deletes it. It is kept longer while child runs are at their clean-up, or its parent
	// has not taken its end, and for an hour at most after a clock was set. May be changed at any
	// time. Absent: kept until somebody deletes it. 0: deleted at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// maxParallelSteps is how many steps may be with workers, be child runs under way, or be
	// between attempts with their locks, at the same time. The steps of a child count for the
	// child. Default 20.
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

// StartFrom names a run whose steps are taken over.
type StartFrom struct {
	// run is its name, in the same namespace. It has ended, under the same tenant, and had the same
	// steps, clean-up, outputs and inputs; if the one follows a Workflow, so does the other, at the
	// same revision. Otherwise this run ends as InvalidSpec.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Run string `json:"run"`
	// uid is that of the run: another one of the same name is not meant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}
