package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LockPolicy tunes the run locks of workload classes, and the delivery of their results.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=lockpol,categories=syncopate
// +kubebuilder:printcolumn:name="Classes",type=string,JSONPath=`.status.effective.classes`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.runLock.scope`
// +kubebuilder:printcolumn:name="TTL",type=integer,JSONPath=`.spec.runLock.ttlSeconds`
// +kubebuilder:printcolumn:name="OnFailure",type=string,JSONPath=`.spec.runLock.renewal.onFailure`
// +kubebuilder:printcolumn:name="Wait",type=string,JSONPath=`.spec.runLock.wait.mode`
// +kubebuilder:printcolumn:name="Retry",type=string,JSONPath=`.status.effective.busyRetryDelay`
// +kubebuilder:printcolumn:name="Runs",type=integer,JSONPath=`.status.runs.admitted`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Validity",type=integer,JSONPath=`.status.effective.validityMillis`,priority=1
// +kubebuilder:printcolumn:name="Queued",type=integer,JSONPath=`.status.runs.queued`,priority=1
// +kubebuilder:printcolumn:name="Busy/min",type=integer,JSONPath=`.status.contention.busyRetriesPerMinute`,priority=1
// +kubebuilder:printcolumn:name="P95Wait",type=integer,JSONPath=`.status.contention.p95LockWaitMillis`,priority=1
// +kubebuilder:printcolumn:name="P99Wait",type=integer,JSONPath=`.status.contention.p99LockWaitMillis`,priority=1
// +kubebuilder:printcolumn:name="AdmBusy/min",type=integer,JSONPath=`.status.contention.paths[?(@.path=="admission")].busyRetriesPerMinute`,priority=1
type LockPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the policy says. Written by the platform team; changes take effect at the next take of a lock.
	// +required
	Spec LockPolicySpec `json:"spec"`
	// status says whether the policy is in force. Written by the operator. Until it has been, observedGeneration is -1.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status *LockPolicyStatus `json:"status,omitempty"`
}

// LockPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type LockPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the policies.
	Items []LockPolicy `json:"items"`
}

// LockPolicySpec is what a policy says.
type LockPolicySpec struct {
	// workloadClasses are the classes that the policy governs; "*" stands for every class that no other policy lists. A class
	// listed by two policies belongs to the older one (by creation, then name); the other is not Ready (ClassConflict). 1 to 50.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	WorkloadClasses []string `json:"workloadClasses"`
	// runLock tunes the lock that makes one replica the only writer of a run.
	// +optional
	// +kubebuilder:default={}
	RunLock RunLockPolicy `json:"runLock,omitempty"`
	// admission bounds how many runs of a tenant are under way at the same time.
	// +optional
	// +kubebuilder:default={}
	Admission AdmissionPolicy `json:"admission,omitempty"`
	// delivery bounds how often a result is tried, and for how long a worker may put its job off.
	// +optional
	// +kubebuilder:default={}
	Delivery DeliveryPolicy `json:"delivery,omitempty"`
}

// OnLimit is what becomes of a run whose tenant is at its limit.
//
// +kubebuilder:validation:Enum=Queue;Reject
type OnLimit string

const (
	// OnLimitQueue lets it wait, in order of priority and age.
	OnLimitQueue OnLimit = "Queue"
	// OnLimitReject has the API server refuse to create it, by the admission webhook.
	OnLimitReject OnLimit = "Reject"
)

// AdmissionStrategy is the way in which it is decided who is admitted.
//
// +kubebuilder:validation:Enum=Atomic;Lock
type AdmissionStrategy string

const (
	// AdmissionStrategyAtomic decides in one script in Redis; nobody waits for anybody.
	AdmissionStrategyAtomic AdmissionStrategy = "Atomic"
	// AdmissionStrategyLock decides under a lock of the tenant, the classical way; for comparison and roll-back.
	AdmissionStrategyLock AdmissionStrategy = "Lock"
)

// AdmissionPolicy bounds how many runs of a tenant are under way at the same time. The count is per tenant and policy. A run keeps
// its place from its admission to its end, also while it is suspended.
type AdmissionPolicy struct {
	// maxConcurrentRuns is how many runs of each tenant may be under way at the same time. 0 admits none. Absent: no limit.
	// Raising it admits at once; lowering it ends nothing, new runs wait.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxConcurrentRuns *int32 `json:"maxConcurrentRuns,omitempty"`
	// tenants have limits of their own instead of maxConcurrentRuns.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Tenants []TenantLimit `json:"tenants,omitempty"`
	// onLimit is Queue, wait for a place; or Reject, the API server refuses to create the run (429 with Retry-After), which needs
	// the admission webhook. Default Queue.
	// +optional
	// +default="Queue"
	// +kubebuilder:default=Queue
	OnLimit OnLimit `json:"onLimit,omitempty"`
	// strategy is Atomic, or Lock: under a lock of the tenant, as lock says. Both give the same answers. Default Atomic.
	// +optional
	// +default="Atomic"
	// +kubebuilder:default=Atomic
	Strategy AdmissionStrategy `json:"strategy,omitempty"`
	// lock tunes strategy Lock. Ignored with Atomic.
	// +optional
	// +kubebuilder:default={}
	Lock AdmissionLock `json:"lock,omitempty"`
}

// TenantLimit is the limit of one tenant.
type TenantLimit struct {
	// name of the tenant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// maxConcurrentRuns of this tenant. 0 admits none.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxConcurrentRuns int32 `json:"maxConcurrentRuns"`
}

// AdmissionLock tunes the lock of a tenant with strategy Lock. The guard has(self.ttlSeconds) is for the API server's check of the
// default {} itself, made before the defaults inside are filled in.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSeconds) || !has(self.maxWaitMillis) || self.ttlSeconds * 1000 > self.maxWaitMillis",message="unsafe times: lock.ttlSeconds must be more than lock.maxWaitMillis"
type AdmissionLock struct {
	// ttlSeconds is how long, in seconds, Redis keeps the lock of a holder that went silent. Must be more than maxWaitMillis. Default 10.
	// +optional
	// +default=10
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
	// retry is the wait before a busy lock is tried again.
	// +optional
	// +kubebuilder:default={}
	Retry AdmissionRetry `json:"retry,omitempty"`
	// maxWaitMillis is how long, in milliseconds, the lock is tried for before the decision is put off: the run waits with reason
	// AdmissionBusy, the webhook answers 503. 0: one try. Default 2000.
	// +optional
	// +default=2000
	// +kubebuilder:default=2000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxWaitMillis *int64 `json:"maxWaitMillis,omitempty"`
}

// AdmissionRetry is the wait before the busy lock of a tenant is tried again.
type AdmissionRetry struct {
	// mode is Jittered, or Fixed for exactly delayMillis. Default Jittered.
	// +optional
	// +default="Jittered"
	// +kubebuilder:default=Jittered
	Mode JitterMode `json:"mode,omitempty"`
	// delayMillis is the base wait in milliseconds. Default 10.
	// +optional
	// +default=10
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	DelayMillis int64 `json:"delayMillis,omitempty"`
	// jitterPercent is p, in percent of delayMillis. Ignored when mode is Fixed. Default 30.
	// +optional
	// +default=30
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	JitterPercent *int64 `json:"jitterPercent,omitempty"`
}

// DeliveryPolicy says what becomes of results that cannot be applied now.
type DeliveryPolicy struct {
	// maxDeliveries is how many deliveries of a result may fail before it is put aside as a dead letter. Only failures of
	// processing it count, such as a write of its effect that the API server refuses: waiting for a lock, for Redis, for room or
	// for an API server that cannot be reached never makes a dead letter. The operator counts in memory, so a restart begins
	// anew. Default 100.
	// +optional
	// +default=100
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxDeliveries int32 `json:"maxDeliveries,omitempty"`
	// maxDelaySeconds caps, in seconds, the wait that a worker may ask for with Retry, and the wait before a delivery that failed
	// is repeated. Default 30.
	// +optional
	// +default=30
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxDelaySeconds int32 `json:"maxDelaySeconds,omitempty"`
}

// RunLockPolicy tunes run locks. The rule keeps a lease renewable twice before its validity ends; `go doc ./internal/lockmgr`
// has the arithmetic ("The deadline rule"): validity = ttl - margin, margin = ttl * clockDriftPercent + safetyMarginMillis. The guard has(self.renewal) is
// for the API server's check of the default {} itself, made before the defaults inside are filled in; no stored object lacks it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.renewal) || 2 * (has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3) + self.ttlSeconds * 10 * self.renewal.clockDriftPercent + self.renewal.safetyMarginMillis < self.ttlSeconds * 1000",messageExpression="'unsafe times: 2 x interval + ttl x drift + safety margin must be less than the TTL, but 2 x %d ms + %d ms + %d ms is not less than %d ms'.format([has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3, self.ttlSeconds * 10 * self.renewal.clockDriftPercent, self.renewal.safetyMarginMillis, self.ttlSeconds * 1000])"
// +kubebuilder:validation:XValidation:rule="!has(self.renewal) || self.renewal.onFailure != 'Continue' || self.scope == 'Run'",message="renewal.onFailure Continue needs scope Run: with Activation a lock is held for milliseconds, and there is nothing to continue"
// +kubebuilder:validation:XValidation:rule="!has(self.renewal) || self.renewal.timeoutMillis < (has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3)",messageExpression="'unsafe times: renewal.timeoutMillis (%d ms) must be less than the renewal interval (%d ms)'.format([self.renewal.timeoutMillis, has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3])"
type RunLockPolicy struct {
	// ttlSeconds is how long, in seconds, Redis keeps the lock of a holder that went silent. Default 30.
	// +optional
	// +default=30
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
	// scope is how long a run keeps its lock: Activation, while results are applied and for lingerMillis after; or Run, from
	// admission to the end, so that one replica has the run for itself and renewals show in its conditions. Default Activation.
	// +optional
	// +default="Activation"
	// +kubebuilder:default=Activation
	Scope LockScope `json:"scope,omitempty"`
	// lingerMillis is how long, in milliseconds, the lock is kept after the last use, so that results which arrive in a row need
	// one take. 0 releases it at once. Default 250.
	// +optional
	// +default=250
	// +kubebuilder:default=250
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2000
	LingerMillis *int64 `json:"lingerMillis,omitempty"`
	// wait says how a busy lock is waited for.
	// +optional
	// +kubebuilder:default={}
	Wait LockWait `json:"wait,omitempty"`
	// busyRetry is the wait before a busy lock is tried again.
	// +optional
	// +kubebuilder:default={}
	BusyRetry BusyRetry `json:"busyRetry,omitempty"`
	// renewal says how a held lock is kept.
	// +optional
	// +kubebuilder:default={}
	Renewal RenewalPolicy `json:"renewal,omitempty"`
}

// LockScope is how long a run keeps its lock.
//
// +kubebuilder:validation:Enum=Activation;Run
type LockScope string

const (
	// LockScopeActivation keeps the lock while results are applied, and for lingerMillis after.
	LockScopeActivation LockScope = "Activation"
	// LockScopeRun keeps the lock from admission to the end of the run.
	LockScopeRun LockScope = "Run"
)

// WaitMode is the way in which a busy lock is waited for.
//
// +kubebuilder:validation:Enum=HandOff;Poll
type WaitMode string

const (
	// WaitModeHandOff queues in Redis: whoever releases the lock hands it to the first in line.
	WaitModeHandOff WaitMode = "HandOff"
	// WaitModePoll tries again after busyRetry.
	WaitModePoll WaitMode = "Poll"
)

// LockWait says how a busy lock is waited for.
type LockWait struct {
	// mode is HandOff, first come first served; or Poll, try again after busyRetry. Default HandOff.
	// +optional
	// +default="HandOff"
	// +kubebuilder:default=HandOff
	Mode WaitMode `json:"mode,omitempty"`
	// budgetMillis is how long, in milliseconds, a result waits for a busy lock before it goes back to NATS with the delay of
	// busyRetry; and how long a place in line is kept for a run that does not ask again. Default 3000.
	// +optional
	// +default=3000
	// +kubebuilder:default=3000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60000
	BudgetMillis *int64 `json:"budgetMillis,omitempty"`
}

// JitterMode says whether waits are spread.
//
// +kubebuilder:validation:Enum=Jittered;Fixed
type JitterMode string

const (
	// JitterModeJittered spreads each wait uniformly in [delay*(1-p), delay*(1+p)].
	JitterModeJittered JitterMode = "Jittered"
	// JitterModeFixed waits exactly delay.
	JitterModeFixed JitterMode = "Fixed"
)

// BusyRetry is the wait before a busy lock is tried again.
type BusyRetry struct {
	// mode is Jittered, or Fixed for exactly delayMillis. Default Jittered.
	// +optional
	// +default="Jittered"
	// +kubebuilder:default=Jittered
	Mode JitterMode `json:"mode,omitempty"`
	// delayMillis is the base wait in milliseconds. Default 500.
	// +optional
	// +default=500
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	DelayMillis int64 `json:"delayMillis,omitempty"`
	// jitterPercent is p, in percent of delayMillis. Ignored when mode is Fixed. Default 30.
	// +optional
	// +default=30
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	JitterPercent *int64 `json:"jitterPercent,omitempty"`
}

// RenewalFailureMode is what happens when a held lock cannot be renewed.
//
// +kubebuilder:validation:Enum=Fence;Continue
type RenewalFailureMode string

const (
	// RenewalFailureFence stops the work: nothing is dispatched or written until the lock was taken anew.
	RenewalFailureFence RenewalFailureMode = "Fence"
	// RenewalFailureContinue goes on, without the lock if need be, until the API server refuses a write.
	RenewalFailureContinue RenewalFailureMode = "Continue"
)

// RenewalPolicy says how a held lock is kept, and when it counts as lost.
type RenewalPolicy struct {
	// intervalMillis is the time between renewals, in milliseconds. Absent: a third of the TTL.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=3600000
	IntervalMillis *int64 `json:"intervalMillis,omitempty"`
	// timeoutMillis bounds one renewal, in milliseconds. Must be less than the interval; at most 1000, with which the Redis
	// client ends a call in any case. Default 1000.
	// +optional
	// +default=1000
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=1000
	TimeoutMillis int64 `json:"timeoutMillis,omitempty"`
	// maxConsecutiveFailures is the number of renewals failed in a row with which the lease is given up, if its validity did not
	// end before. Ignored with onFailure Continue. Default 3.
	// +optional
	// +default=3
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxConsecutiveFailures int32 `json:"maxConsecutiveFailures,omitempty"`
	// onFailure is Fence, stop when the lock may be another's; or Continue, go on with a lock once held while Redis cannot be
	// reached, for runs which rather work twice than wait. Taking a lock always fails closed. Default Fence.
	// +optional
	// +default="Fence"
	// +kubebuilder:default=Fence
	OnFailure RenewalFailureMode `json:"onFailure,omitempty"`
	// clockDriftPercent is the share of the TTL, in percent, by which the clocks of holder and Redis may drift apart. Default 1.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	ClockDriftPercent *int64 `json:"clockDriftPercent,omitempty"`
	// safetyMarginMillis is taken off the validity on top of the drift, in milliseconds, for pauses between a check and the
	// write that it guards. At least 100, so that a holder has always stopped before its lock is free. Default 3000.
	// +optional
	// +default=3000
	// +kubebuilder:default=3000
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=600000
	SafetyMarginMillis *int64 `json:"safetyMarginMillis,omitempty"`
}

// LockPolicyStatus says whether the policy is in force, and how it fares.
type LockPolicyStatus struct {
	// observedGeneration is the metadata.generation that this status reflects; -1: no operator has looked at the policy yet.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions holds Ready, and Stalled for tools that know kstatus.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// effective is what follows from spec and defaults.
	// +optional
	Effective *EffectiveLockPolicy `json:"effective,omitempty"`
	// runs counts the unfinished runs that the policy governs. Refreshed at most every 30 s.
	// +optional
	Runs *PolicyRuns `json:"runs,omitempty"`
	// contention says how much these runs wait for locks. Refreshed at most every 30 s. Absent until the operator has led for
	// 30 s; for the first 30 s of a new leader the figures are those of the one before.
	// +optional
	Contention *LockContention `json:"contention,omitempty"`
}

// EffectiveLockPolicy is what follows from a policy's spec and defaults.
type EffectiveLockPolicy struct {
	// classes are the workload classes that the policy governs, separated by commas: those of spec without the ones that belong
	// to an older policy.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Classes string `json:"classes,omitempty"`
	// renewIntervalMillis is the time between renewals, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RenewIntervalMillis int64 `json:"renewIntervalMillis,omitempty"`
	// marginMillis is ttl x clock drift + safety margin, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MarginMillis int64 `json:"marginMillis,omitempty"`
	// validityMillis is ttl - margin, in milliseconds: how long a holder works after the last renewal that succeeded was sent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ValidityMillis int64 `json:"validityMillis,omitempty"`
	// busyRetryDelay is the wait before a busy lock is tried again, as "350-650ms", or "500ms" when it is fixed.
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
	// queued is the number of runs that wait to be let in.
	// +required
	// +kubebuilder:validation:Minimum=0
	Queued int32 `json:"queued"`
}

// LockContention says how much runs wait for locks. The figures are those of the metrics syncopate_lock_busy_retries_total
// and syncopate_run_lock_wait_seconds since the last refresh, of the replica that leads. Those of its first level are of run
// locks only: admission locks are polled every few milliseconds, and would hide them.
type LockContention struct {
	// busyRetriesPerMinute is how often a minute a busy run lock was to be tried again later.
	// +required
	// +kubebuilder:validation:Minimum=0
	BusyRetriesPerMinute int64 `json:"busyRetriesPerMinute"`
	// p95LockWaitMillis is the time, in milliseconds, within which 95 of 100 run locks that were taken had been waited for;
	// estimated from the buckets of the histogram.
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
	// path is what the lock was wanted for: reconcile and result are run locks, admission is the lock of a tenant.
	// +required
	Path LockPath `json:"path"`
	// busyRetriesPerMinute is how often a minute a busy lock was to be tried again later.
	// +required
	// +kubebuilder:validation:Minimum=0
	BusyRetriesPerMinute int64 `json:"busyRetriesPerMinute"`
	// p95LockWaitMillis is as above, of this path, in milliseconds. Absent: 0, or the path is admission, whose waits are known by tenant: the
	// metric syncopate_admission_lock_wait_seconds has them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	P95LockWaitMillis int64 `json:"p95LockWaitMillis,omitempty"`
	// p99LockWaitMillis is the same for 99 of 100, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	P99LockWaitMillis int64 `json:"p99LockWaitMillis,omitempty"`
}
