// SPDX-License-Identifier: Apache-2.0

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
//
// +kubebuilder:validation:XValidation:rule="has(self.total) || !has(self.tenants) || self.tenants.all(t, !has(t.guaranteed) && !has(t.weight))",message="guaranteed and weight of a tenant are parts of total: set total.maxConcurrentRuns, or leave them out"
// +kubebuilder:validation:XValidation:rule="!has(self.total) || !has(self.tenants) || self.tenants.map(t, has(t.guaranteed) ? t.guaranteed : 0).sum() <= self.total.maxConcurrentRuns",message="the sum of what tenants are guaranteed must be at most total.maxConcurrentRuns"
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
	// total bounds the runs of all tenants together. What is free goes to who uses least for its
	// weight; a tenant gets what it is guaranteed first. Absent: tenants are counted apart.
	// +optional
	Total *AdmissionTotal `json:"total,omitempty"`
	// onLimit is Queue, wait for a place; or Reject, the API server refuses to create the run (429
	// with Retry-After), which needs the admission webhook. Default Queue.
	// +optional
	// +default="Queue"
	// +kubebuilder:default=Queue
	OnLimit OnLimit `json:"onLimit,omitempty"`
	// strategy is Atomic, or Lock: under a lock of the tenant, as lock says; with total under one
	// lock for all tenants. Both give the same answers. Default Atomic.
	// +optional
	// +default="Atomic"
	// +kubebuilder:default=Atomic
	Strategy AdmissionStrategy `json:"strategy,omitempty"`
	// lock tunes strategy Lock. Ignored with Atomic.
	// +optional
	// +kubebuilder:default={}
	Lock AdmissionLock `json:"lock,omitempty"`
}

// AdmissionTotal bounds all tenants of a LockPolicy together.
type AdmissionTotal struct {
	// maxConcurrentRuns is how many runs of all tenants may be under way at the same time. 0 admits
	// none. Raising it admits at once; lowering it ends nothing, new runs wait.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxConcurrentRuns int32 `json:"maxConcurrentRuns"`
}

// TenantLimit is the limit of one tenant, and its share of the total.
//
// +kubebuilder:validation:XValidation:rule="!has(self.guaranteed) || self.guaranteed <= self.maxConcurrentRuns",message="guaranteed must be at most maxConcurrentRuns of the tenant"
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
	// guaranteed is how many runs this tenant gets before others get more than they are guaranteed.
	// With onLimit Queue others use what it does not; that comes back as their runs end. Needs
	// total. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Guaranteed int32 `json:"guaranteed,omitempty"`
	// weight is the part of this tenant in what nobody is guaranteed, or uses: of two tenants that
	// wait, one with weight 3 has three times the runs of one with 1. Needs total. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Weight int32 `json:"weight,omitempty"`
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
