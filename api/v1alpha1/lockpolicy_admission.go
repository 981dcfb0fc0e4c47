package v1alpha1

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
	// AdmissionStrategyLock decides under a lock of the tenant, the classical way; for
	// comparison and roll-back.
	AdmissionStrategyLock AdmissionStrategy = "Lock"
)

// AdmissionPolicy bounds how many runs of a tenant are under way at the same time. The count
// is per tenant and policy. A run keeps its place from its admission to its end, also while
// it is suspended.
type AdmissionPolicy struct {
	// maxConcurrentRuns is how many runs of each tenant may be under way at the same time. 0 admits
	// none. Absent: no limit. Raising it admits at once; lowering it ends nothing, new runs wait.
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
	// onLimit is Queue, wait for a place; or Reject, the API server refuses to create the run (429
	// with Retry-After), which needs the admission webhook. Default Queue.
	// +optional
	// +default="Queue"
	// +kubebuilder:default=Queue
	OnLimit OnLimit `json:"onLimit,omitempty"`
	// strategy is Atomic, or Lock: under a lock of the tenant, as lock says. Both give the same
	// answers. Default Atomic.
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

// AdmissionLock tunes the lock of a tenant with strategy Lock. The guard
// has(self.ttlSeconds) is for the API server's check of the default {} itself, made before
// the defaults inside are filled in.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSeconds) || !has(self.maxWaitMillis) || self.ttlSeconds * 1000 > self.maxWaitMillis",message="unsafe times: lock.ttlSeconds must be more than lock.maxWaitMillis"
type AdmissionLock struct {
	// ttlSeconds is how long, in seconds, Redis keeps the lock of a holder that went silent. Must
	// be more than maxWaitMillis. Default 10.
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
	// maxWaitMillis is how long, in milliseconds, the lock is tried for before the decision
	// is put off: the run waits with reason AdmissionBusy, the webhook answers 503. 0: one
	// try. Default 2000.
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
