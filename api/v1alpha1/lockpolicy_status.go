// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LockPolicyStatus says whether the policy is in force, and how it fares.
type LockPolicyStatus struct {
	// observedGeneration is the metadata.generation that this status reflects; -1: no operator has
	// looked at the policy yet.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions holds Ready, Stalled for tools that know kstatus, RolledOut if spec has a
	// rollout, and RevisionsKept while a revision of it is refused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// effective is what is in force for the runs that are in no canary: what follows from spec and
	// defaults, but for an edit of runLock that is tried, or was rolled back.
	// +optional
	Effective *EffectiveLockPolicy `json:"effective,omitempty"`
	// runs counts the unfinished runs that the policy governs. Refreshed at most every 30 s.
	// +optional
	Runs *PolicyRuns `json:"runs,omitempty"`
	// contention says how much these runs wait for locks. Refreshed at most every 30 s. Absent
	// until the operator has led for 30 s; for the first 30 s of a new leader the figures are those
	// of the one before. Absent for a policy that shares the label "other" in metrics, as the
	// figures of these are not told apart.
	// +optional
	Contention *LockContention `json:"contention,omitempty"`
	// rollout is where the last edit of runLock, or of admission's strategy and lock, is. Absent:
	// spec has no rollout.
	// +optional
	Rollout *LockPolicyRolloutStatus `json:"rollout,omitempty"`
}

// EffectiveLockPolicy is what follows from what a policy has in force, and defaults. Of runLock
// that is the baseline while an edit is tried, and after it was rolled back.
type EffectiveLockPolicy struct {
	// classes are the workload classes that the policy governs, separated by commas: those of spec
	// without the ones that belong to an older policy.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Classes string `json:"classes,omitempty"`
	// scope is how long a run keeps its lock.
	// +optional
	Scope LockScope `json:"scope,omitempty"`
	// ttlSeconds is for how many seconds Redis keeps the lock of a holder that went silent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
	// onFailure is what happens when a held lock cannot be renewed.
	// +optional
	OnFailure RenewalFailureMode `json:"onFailure,omitempty"`
	// waitMode is how a busy lock is waited for.
	// +optional
	WaitMode WaitMode `json:"waitMode,omitempty"`
	// renewIntervalMillis is the time between renewals, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RenewIntervalMillis int64 `json:"renewIntervalMillis,omitempty"`
	// marginMillis is ttl x clock drift + safety margin, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MarginMillis int64 `json:"marginMillis,omitempty"`
	// validityMillis is ttl - margin, in milliseconds: how long a holder works after the last
	// renewal that succeeded was sent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ValidityMillis int64 `json:"validityMillis,omitempty"`
	// busyRetryDelay is the wait before a busy lock is tried again, as "350-650ms", or "500ms" when
	// it is fixed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BusyRetryDelay string `json:"busyRetryDelay,omitempty"`
}

// PolicyRuns counts unfinished runs.
type PolicyRuns struct {
	// admitted is the number of runs that were let in and have not ended.
	// +required
	// +kubebuilder:validation:Minimum=0
	Admitted int32 `json:"admitted"`
	// queued is the number of runs that wait to be let in. Those that are suspended do not.
	// +required
	// +kubebuilder:validation:Minimum=0
	Queued int32 `json:"queued"`
}

// LockContention says how much runs wait for locks. The figures are those of the metrics
// syncopate_lock_busy_retries_total and syncopate_run_lock_wait_seconds since the last refresh, of
// the replica that leads. Those of its first level are of run locks only: admission locks are
// polled every few milliseconds, and would hide them.
type LockContention struct {
	// busyRetriesPerMinute is how often a minute a busy run lock was to be tried again later.
	// +required
	// +kubebuilder:validation:Minimum=0
	BusyRetriesPerMinute int64 `json:"busyRetriesPerMinute"`
	// p95LockWaitMillis is the time, in milliseconds, within which 95 of 100 run locks that were
	// taken had been waited for; estimated from the buckets of the histogram.
	// +required
	// +kubebuilder:validation:Minimum=0
	P95LockWaitMillis int64 `json:"p95LockWaitMillis"`
	// p99LockWaitMillis is the same for 99 of 100, in milliseconds. Absent: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	P99LockWaitMillis int64 `json:"p99LockWaitMillis,omitempty"`
	// paths are the figures by what a lock was wanted for.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=8
	Paths []PathContention `json:"paths,omitempty"`
}

// LockPath is what a lock is wanted for, as the label path of metrics has it.
// +kubebuilder:validation:Enum=reconcile;result;admission
type LockPath string

// The paths.
const (
	// PathReconcile is a run lock for a pass that no result waits for.
	PathReconcile LockPath = "reconcile"
	// PathResult is a run lock for a pass that results wait for.
	PathResult LockPath = "result"
	// PathAdmission is the admission lock of a tenant, with admission.strategy Lock.
	PathAdmission LockPath = "admission"
)

// PathContention is the contention of one path.
type PathContention struct {
	// path is what the lock was wanted for: reconcile and result are run locks, admission is the
	// lock of a tenant.
	// +required
	Path LockPath `json:"path"`
	// busyRetriesPerMinute is how often a minute a busy lock was to be tried again later.
	// +required
	// +kubebuilder:validation:Minimum=0
	BusyRetriesPerMinute int64 `json:"busyRetriesPerMinute"`
	// p95LockWaitMillis is as above, of this path, in milliseconds. Absent: 0, or the path is
	// admission, whose waits are known by tenant: the metric
	// syncopate_admission_lock_wait_seconds has them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	P95LockWaitMillis int64 `json:"p95LockWaitMillis,omitempty"`
	// p99LockWaitMillis is the same for 99 of 100, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	P99LockWaitMillis int64 `json:"p99LockWaitMillis,omitempty"`
}
