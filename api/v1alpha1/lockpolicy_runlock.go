// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// RunLockPolicy tunes run locks. The rule keeps a lease renewable twice before its validity ends;
// `go doc ./internal/lockmgr` has the arithmetic ("The deadline rule"): validity = ttl - margin,
// margin = ttl * clockDriftPercent + safetyMarginMillis. The guard has(self.renewal) is for the API
// server's check of the default {} itself, made before the defaults inside are filled in; no stored
// object lacks it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.renewal) || 2 * (has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3) + self.ttlSeconds * 10 * self.renewal.clockDriftPercent + self.renewal.safetyMarginMillis < self.ttlSeconds * 1000",messageExpression="'unsafe times: 2 x interval + ttl x drift + safety margin must be less than the TTL, but 2 x %d ms + %d ms + %d ms is not less than %d ms'.format([has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3, self.ttlSeconds * 10 * self.renewal.clockDriftPercent, self.renewal.safetyMarginMillis, self.ttlSeconds * 1000])"
// +kubebuilder:validation:XValidation:rule="!has(self.renewal) || self.renewal.onFailure != 'Continue' || self.scope == 'Run'",message="renewal.onFailure Continue needs scope Run: with Activation a lock is held for milliseconds, and there is nothing to continue"
// +kubebuilder:validation:XValidation:rule="!has(self.renewal) || self.renewal.timeoutMillis < (has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3)",messageExpression="'unsafe times: renewal.timeoutMillis (%d ms) must be less than the renewal interval (%d ms)'.format([self.renewal.timeoutMillis, has(self.renewal.intervalMillis) ? self.renewal.intervalMillis : self.ttlSeconds * 1000 / 3])"
type RunLockPolicy struct {
	// ttlSeconds is how long, in seconds, Redis keeps the lock of a holder that went
	// silent. Default 30.
	// +optional
	// +default=30
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	TTLSeconds int64 `json:"ttlSeconds,omitempty"`
	// scope is how long a run keeps its lock: Activation, while results are applied and for
	// lingerMillis after; or Run, from admission to the end, so that one replica has the run for
	// itself and renewals show in its conditions. Default Activation.
	// +optional
	// +default="Activation"
	// +kubebuilder:default=Activation
	Scope LockScope `json:"scope,omitempty"`
	// lingerMillis is how long, in milliseconds, the lock is kept after the last use, so that
	// results which arrive in a row need one take. 0 releases it at once. Default 250.
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

// RenewalFailureMode is what happens when a held lock cannot be renewed.
//
// +kubebuilder:validation:Enum=Fence;Continue
type RenewalFailureMode string

const (
	// RenewalFailureFence stops the work: nothing is dispatched or written until the lock
	// was taken anew.
	RenewalFailureFence RenewalFailureMode = "Fence"
	// RenewalFailureContinue goes on, without the lock if need be, until the API server
	// refuses a write.
	RenewalFailureContinue RenewalFailureMode = "Continue"
)

// RenewalPolicy says how a held lock is kept, and when it counts as lost.
type RenewalPolicy struct {
	// intervalMillis is the time between renewals, in milliseconds. Absent: a third of the TTL.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=3600000
	IntervalMillis *int64 `json:"intervalMillis,omitempty"`
	// timeoutMillis bounds one renewal, in milliseconds. Must be less than the interval; at most
	// 1000, with which the Redis client ends a call in any case. Default 1000.
	// +optional
	// +default=1000
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=1000
	TimeoutMillis int64 `json:"timeoutMillis,omitempty"`
	// maxConsecutiveFailures is the number of renewals failed in a row with which the lease is
	// given up, if its validity did not end before. Ignored with onFailure Continue. Default 3.
	// +optional
	// +default=3
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxConsecutiveFailures int32 `json:"maxConsecutiveFailures,omitempty"`
	// onFailure is Fence, stop when the lock may be another's; or Continue, go on with a lock once
	// held while Redis cannot be reached, for runs which rather work twice than wait. Taking a lock
	// always fails closed. Default Fence.
	// +optional
	// +default="Fence"
	// +kubebuilder:default=Fence
	OnFailure RenewalFailureMode `json:"onFailure,omitempty"`
	// clockDriftPercent is the share of the TTL, in percent, by which the clocks of holder and
	// Redis may drift apart. Default 1.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	ClockDriftPercent *int64 `json:"clockDriftPercent,omitempty"`
	// safetyMarginMillis is taken off the validity on top of the drift, in milliseconds, for pauses
	// between a check and the write that it guards. At least 100, so that a holder has always
	// stopped before its lock is free. Default 3000.
	// +optional
	// +default=3000
	// +kubebuilder:default=3000
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=600000
	SafetyMarginMillis *int64 `json:"safetyMarginMillis,omitempty"`
}
