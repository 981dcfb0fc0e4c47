// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolloutCounts are of the runs or tenant-minutes of one arm.
type RolloutCounts struct {
	// runs were put into the arm. A tenant-minute counts when it votes.
	// +required
	// +kubebuilder:validation:Minimum=0
	Runs int64 `json:"runs"`
	// ended are those of them that ended.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Ended int64 `json:"ended,omitempty"`
	// contended are those that ended whose lock was busy at least once. A tenant-minute has the
	// vote of one of its starts, drawn from those that found the lock busy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Contended int64 `json:"contended,omitempty"`
	// busy are those of the contended whose lock was busy again when it was tried again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Busy int64 `json:"busy,omitempty"`
	// abandoned are runs that lost their lock while they worked.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Abandoned int64 `json:"abandoned,omitempty"`
	// fenceRefused are runs of which a write was refused by the fence.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FenceRefused int64 `json:"fenceRefused,omitempty"`
	// deadLettered are runs that had a dead letter.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DeadLettered int64 `json:"deadLettered,omitempty"`
	// waits are how many that ended had a longest lock wait of up to 1, 2, 5, 10, 20, 50, 100, 200,
	// 500 ms, 1, 2, 5, 10, 20, 60 s, and more. A start that was put off, since the lock was not to
	// be had within maxWaitMillis, is in the last one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=0
	Waits []int64 `json:"waits,omitempty"`
	// latencies are the same of the longest result latency.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=0
	Latencies []int64 `json:"latencies,omitempty"`
}

// RolloutThreshold is what a time must exceed to count: the control's p95 when it was frozen, or
// the last bound, if that is below. Both have the same bucket where the p95 is between the last two
// bounds.
type RolloutThreshold struct {
	// bucket is the index of the last bucket that is not above it.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	Bucket int32 `json:"bucket"`
	// canaryAbove is how many runs of the canary were above when it was frozen; they do not count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CanaryAbove int64 `json:"canaryAbove,omitempty"`
	// canaryAsked is how many had a time by then.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CanaryAsked int64 `json:"canaryAsked,omitempty"`
	// controlAbove is as canaryAbove, of the control.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ControlAbove int64 `json:"controlAbove,omitempty"`
	// controlAsked is as canaryAsked, of the control.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ControlAsked int64 `json:"controlAsked,omitempty"`
}

// RolloutReplica is what one process counted for the candidate. Its counts never go down.
type RolloutReplica struct {
	// name of the process: that of the replica, and a random part for each of its lives.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	Name string `json:"name"`
	// canary is what it counted of the canary.
	// +optional
	Canary *RolloutCounts `json:"canary,omitempty"`
	// control is what it counted of the control.
	// +optional
	Control *RolloutCounts `json:"control,omitempty"`
	// restRuns is how many runs it put into neither.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestRuns int64 `json:"restRuns,omitempty"`
}

// RolloutOutcome is what became of a candidate.
type RolloutOutcome struct {
	// name of the revision.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// reason of its end: AllStepsPassed, PromotedByUser, Immediate, or why it was rolled back.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// endedAt is when that was decided.
	// +required
	EndedAt metav1.Time `json:"endedAt"`
	// changes of runLock that it asked for, against what was in force: "wait.mode:
	// Poll -> HandOff".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	Changes []string `json:"changes,omitempty"`
}

// PolicyTrial is the part that a run has in a rollout, and its votes so far. Pinned with the
// run's first write under its lock, or with that it waits for its first lock.
type PolicyTrial struct {
	// candidate is the name of the revision that is tried.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Candidate string `json:"candidate"`
	// arm is Canary, under the candidate; or Control, under the baseline.
	// +required
	Arm RolloutArm `json:"arm"`
	// busyTries is how often in a row, at the most, a replica found the lock busy before it had
	// it, and wrote, or ended the run without it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BusyTries int32 `json:"busyTries,omitempty"`
	// longestWaitMillis is the longest wait for the lock, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LongestWaitMillis int64 `json:"longestWaitMillis,omitempty"`
	// longestLatencyMillis is the longest time from the publication of a result to the decision
	// about it, in milliseconds. Absent: no result was applied.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LongestLatencyMillis int64 `json:"longestLatencyMillis,omitempty"`
}
