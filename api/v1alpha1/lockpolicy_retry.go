// SPDX-License-Identifier: Apache-2.0

package v1alpha1

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
	// mode is HandOff, first come first served; or Poll, try again after busyRetry.
	// Default HandOff.
	// +optional
	// +default="HandOff"
	// +kubebuilder:default=HandOff
	Mode WaitMode `json:"mode,omitempty"`
	// budgetMillis is how long, in milliseconds, a result waits for a busy lock before it goes back
	// to NATS with the delay of busyRetry; and how long a place in line is kept for a run that does
	// not ask again. Default 3000.
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
