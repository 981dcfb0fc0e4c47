// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// RunPhase is a summary of a run for people and selectors, derived from its conditions.
//
// +kubebuilder:validation:Enum=Pending;Queued;Running;Suspended;Succeeded;Failed;Cancelled;TimedOut
type RunPhase string

// Phases of a run. Succeeded, Failed, Cancelled and TimedOut are ends and absorbing.
const (
	RunPending   RunPhase = "Pending"   // accepted, not yet looked at
	RunQueued    RunPhase = "Queued"    // waits for admission
	RunRunning   RunPhase = "Running"   // admitted
	RunSuspended RunPhase = "Suspended" // spec.suspend is set
	RunSucceeded RunPhase = "Succeeded"
	RunFailed    RunPhase = "Failed"
	RunCancelled RunPhase = "Cancelled"
	RunTimedOut  RunPhase = "TimedOut"
)

// FieldsNotEnded selects the runs that have not ended, where the API server keeps them: a field
// selector.
const FieldsNotEnded = "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Cancelled,status.phase!=TimedOut"

// StepPhase is where a step is.
//
// +kubebuilder:validation:Enum=Pending;Dispatched;Running;BackingOff;WaitingForApproval;Delayed;Succeeded;Failed;Skipped;Cancelled
type StepPhase string

// Phases of a step. Succeeded, Failed, Skipped and Cancelled are ends.
const (
	StepPending    StepPhase = "Pending"    // waits for the steps it depends on, or for a free place under maxParallelSteps
	StepDispatched StepPhase = "Dispatched" // its job is, or is about to be, with NATS; no worker said Started
	StepRunning    StepPhase = "Running"    // a worker said Started; or its child run is, or is about to be, under way
	StepBackingOff StepPhase = "BackingOff" // waits for nextAttemptAt
	StepWaiting    StepPhase = "WaitingForApproval"
	StepDelayed    StepPhase = "Delayed" // waits until delayedUntil
	StepSucceeded  StepPhase = "Succeeded"
	StepFailed     StepPhase = "Failed"
	StepSkipped    StepPhase = "Skipped"   // its when expression was false
	StepCancelled  StepPhase = "Cancelled" // the run ended first
)

// DeadLetterReason is why an answer was put aside while its attempt is in flight.
//
// +kubebuilder:validation:Enum=DeliveriesExhausted
type DeadLetterReason string

// Reasons of dead letters that leave their attempt in flight. (One that is rejected ends
// it, see StepError.)
const (
	DeadLetterExhausted DeadLetterReason = ReasonDeliveriesExhausted // writes with it were refused too often
)

// WriterVersion is the version of the format of a run's status that this code knows, and writes as
// status.minWriterVersion. It grows with each change after which code that knows less must not
// write: it would drop a field that matters, or misread one (ADR 30).
//
// Version 2 knows runs that are ahead of their status (ADR 45), version 3 locks across runs (ADR
// 47), version 4 runs that follow a Workflow (ADR 49), version 5 items with locks (ADR 55). A run
// that has none of it is written as OldestVersion.
const (
	WriterVersion    int32 = 5
	ItemLocksVersion int32 = 5
	WorkflowVersion  int32 = 4
	LocksVersion     int32 = 3
	AheadVersion     int32 = 2
	OldestVersion    int32 = 1
)

// HasLocks says whether a run, one of its steps, or one of their items, has locks across runs.
func (r *WorkflowRun) HasLocks() bool {
	has := func(s Step) bool { return len(s.Locks) > 0 }
	return len(r.Spec.Locks) > 0 || slices.ContainsFunc(r.Spec.Steps, has) || slices.ContainsFunc(r.Spec.Finally, has) || r.HasItemLocks()
}

// HasItemLocks says whether items of one of its steps have.
func (r *WorkflowRun) HasItemLocks() bool {
	has := func(s Step) bool { return s.ForEach != nil && len(s.ForEach.Locks) > 0 }
	return slices.ContainsFunc(r.Spec.Steps, has) || slices.ContainsFunc(r.Spec.Finally, has)
}

// WorkflowRunStatus is what happened to a run so far.
//
// The rules are the last line of defence (guarantees G3, G7): whoever believes to hold the run
// lock, the API server accepts no write with a lower fence, nor one with an equal fence of another
// lease, nor one that changes an end.
//
// The status has one owner, so managedFields name it as a whole: an entry for each field of
// each condition would be a third of a small run, and comparing them a sixth of the cost of a
// write (ADR 0002).
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.fence) || (has(self.fence) && self.fence >= oldSelf.fence)",message="stale writer: status.fence must not decrease"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.fence) || !has(self.fence) || self.fence != oldSelf.fence || (has(self.lock) == has(oldSelf.lock) && (!has(self.lock) || self.lock.leaseID == oldSelf.lock.leaseID))",message="stale writer: an equal status.fence needs the same status.lock.leaseID"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.completedAt) || (has(self.completedAt) && self.completedAt == oldSelf.completedAt && has(self.phase) && self.phase == oldSelf.phase)",message="the run has ended: status.phase and status.completedAt cannot change"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.tenant) || (has(self.tenant) && self.tenant == oldSelf.tenant)",message="status.tenant is pinned"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.parent) || (has(self.parent) && self.parent == oldSelf.parent)",message="status.parent is pinned"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.workflow) || (has(self.workflow) && self.workflow == oldSelf.workflow)",message="status.workflow is pinned"
type WorkflowRunStatus struct {
	// observedGeneration is the metadata.generation that this status reflects; -1: no operator has
	// looked at the run yet.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// minWriterVersion is the least version of the format of status that an operator has to know to
	// write this status. One that knows less leaves the run alone: it would drop what it does not
	// know. Absent: any may write it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinWriterVersion int32 `json:"minWriterVersion,omitempty"`
	// tenant is whom the run is accounted to, pinned when the run was first seen.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant,omitempty"`
	// parent is the run of which this one claims to be a child, pinned when the run was first seen.
	// Such a run begins only if the parent's status names it, and then uses the slot of the run at
	// the top. Absent: it is no child.
	// +optional
	Parent *ParentStatus `json:"parent,omitempty"`
	// workflow is the revision that the run follows, pinned when the run was first seen: retries,
	// restarts, and a Workflow that changes or is deleted do not change it. Absent: the steps are
	// in spec.
	// +optional
	Workflow *WorkflowRevision `json:"workflow,omitempty"`
	// phase summarises the conditions for people and selectors.
	// +optional
	Phase RunPhase `json:"phase,omitempty"`
	// fence is the fencing token of the last writer; it never decreases. Absent: nobody wrote under
	// the lock yet. Up to 2^53-1, where the numbers of Redis' scripts end.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740991
	Fence *int64 `json:"fence,omitempty"`
	// lock is the lease under which the last write was made.
	// +optional
	Lock *RunLockStatus `json:"lock,omitempty"`
	// progress is "finished steps/all steps"; skipped steps count as finished.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Progress string `json:"progress,omitempty"`
	// policy is the LockPolicy in force at the last write. Absent: built-in defaults.
	// +optional
	Policy *PolicyReference `json:"policy,omitempty"`
	// checkpoint says that the run may have been ahead of its status, and how far. Absent: it never
	// was. Once there it stays.
	// +optional
	Checkpoint *CheckpointStatus `json:"checkpoint,omitempty"`
	// admission says when the run was queued and admitted.
	// +optional
	Admission *AdmissionStatus `json:"admission,omitempty"`
	// locks are those of spec.locks, from the admission to the end of the run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Locks []LockHold `json:"locks,omitempty"`
	// startedAt is when the first step was dispatched.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// completedAt is when the run ended; once set, phase and completedAt never change.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// endStoredAt is when the API server stored the end, where the clock of the operator was ahead,
	// so that completedAt was still to come: spec.ttlSecondsAfterFinished counts from it. Absent:
	// from completedAt.
	// +optional
	EndStoredAt *metav1.Time `json:"endStoredAt,omitempty"`
	// ending is how the run will end when the steps of spec.finally are over. It stands
	// from then on, also if the run ended otherwise.
	// +optional
	Ending *EndingStatus `json:"ending,omitempty"`
	// outputs is what the run returned, evaluated from spec.outputs when its steps had succeeded: a
	// JSON object of at most 4 KiB. A larger one, or one more than 100 deep, is in outputsRef.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Outputs *runtime.RawExtension `json:"outputs,omitempty"`
	// outputsRef is where outputs is, if it is too large or too deep for status.
	// +optional
	OutputsRef *OutputReference `json:"outputsRef,omitempty"`
	// steps is the state of each step, in the order of spec.steps, then of spec.finally.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Steps []StepStatus `json:"steps,omitempty"`
	// conditions are Admitted, RunLockRenewed, RunLockAbandoned, DeadLettered, Finished, Succeeded,
	// Reconciling and Stalled; all are always present once the run was first written.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// EndingStatus is the outcome of a run whose finally steps run. It comes unless the clean-up is cut
// off: a run that is terminated or deleted meanwhile, or whose parent is, ends as Cancelled with
// the reason Terminated. One whose parent is deleted with --cascade=orphan goes on.
type EndingStatus struct {
	// phase in which the run will end; Succeeded becomes Failed if the clean-up fails: by a finally
	// step, by finallyTimeoutSeconds, or as status has no room or the Workflow is gone.
	// +required
	Phase RunPhase `json:"phase"`
	// reason is the coming reason of the condition Succeeded.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message is the coming message of the condition Succeeded.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
	// announcedAt is when all other steps were over; finallyTimeoutSeconds counts from it.
	// +required
	AnnouncedAt metav1.MicroTime `json:"announcedAt"`
}

// CheckpointStatus says how a run is ahead of its status.
type CheckpointStatus struct {
	// mode of the last write. With Coalesced the run may be ahead of what status says now.
	// +required
	Mode CheckpointMode `json:"mode"`
	// lagMillis is for how long, at most, the last write made what is in it wait, in milliseconds.
	// Absent: not at all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LagMillis int64 `json:"lagMillis,omitempty"`
}

// RunLockStatus describes the lease under which a status write was made.
type RunLockStatus struct {
	// leaseID is the random token of the lease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	LeaseID string `json:"leaseID"`
	// holder names the operator replica.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Holder string `json:"holder,omitempty"`
	// acquiredAt is when the lease was taken, by the clock of its holder.
	// +optional
	AcquiredAt *metav1.Time `json:"acquiredAt,omitempty"`
	// consecutiveRenewalFailures counts renewals of the lease that failed in a row, as
	// of the write.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConsecutiveRenewalFailures int32 `json:"consecutiveRenewalFailures,omitempty"`
}

// PolicyReference names a LockPolicy at a generation.
type PolicyReference struct {
	// name of the LockPolicy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// generation of the LockPolicy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`
	// trial is the run's part in a rollout of the policy. Absent: it has none.
	// +optional
	Trial *PolicyTrial `json:"trial,omitempty"`
}

// AdmissionStatus says when a run was queued and admitted.
type AdmissionStatus struct {
	// queuedAt is when the run was first seen, not suspended; queueTimeoutSeconds counts from it.
	// +optional
	QueuedAt *metav1.Time `json:"queuedAt,omitempty"`
	// admittedAt is when the run was admitted; activeDeadlineSeconds counts from it.
	// +optional
	AdmittedAt *metav1.Time `json:"admittedAt,omitempty"`
	// lockWait says that the run waits for its locks. Absent: it does not.
	// +optional
	LockWait *LocksWait `json:"lockWait,omitempty"`
	// slotExpiresAt says that the run keeps a slot of its tenant while it waits for its locks,
	// until then at the latest. It is counted as if it were under way. Absent: it has none
	// while it waits.
	// +optional
	SlotExpiresAt *metav1.MicroTime `json:"slotExpiresAt,omitempty"`
	// policy is the LockPolicy under which the run was admitted, and is counted until it ends.
	// Absent: built-in defaults, without a limit, or a child run, which is in the slot of its root.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy,omitempty"`
}

// NeedsNewer is the version that an operator has to know to write the run, if this code does not
// know it; else 0. A run without one was written before there were versions.
func (r *WorkflowRun) NeedsNewer() int32 {
	if r == nil || r.Status == nil || r.Status.MinWriterVersion <= WriterVersion {
		return 0
	}
	return r.Status.MinWriterVersion
}

// Unwritten says whether no operator has written the run's status yet: the API server gives it the
// default of the schema.
func (r *WorkflowRun) Unwritten() bool { return r.Status == nil || r.Status.ObservedGeneration < 0 }
