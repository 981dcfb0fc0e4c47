// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ForEach makes a step one job for each item of a list. The step succeeds when all items are
// over; its output is the list of theirs, in the order of the items, null for an item that has
// none or that failed.
type ForEach struct {
	// items is one ${...} CEL expression that gives a list, over inputs, steps and run; evaluated
	// when the step starts. At most 10,000 items and 4 MiB; none is a success with the output [].
	// The outputs of all items may have 7.75 MiB together. A run may have 20 steps with forEach,
	// and 2,000 of their jobs at a time.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Items string `json:"items"`
	// maxParallel is how many items may be under way at the same time, those that wait for another
	// attempt included. The step itself counts as one for maxParallelSteps. Default 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxParallel int32 `json:"maxParallel,omitempty"`
	// onItemFailure says what an item means that failed for good, after the attempts that retry
	// allows each of them. FailStep: the step fails at once, and the jobs of other items are taken
	// back. Collect: the others go on, and the step succeeds without the outputs of those that
	// failed. Default FailStep.
	// +optional
	OnItemFailure ItemFailureAction `json:"onItemFailure,omitempty"`
	// locks are those of each item, held while it is under way, its retries included: all are taken
	// together, or none, before its first job goes out. Their keys may read item, too. An item that
	// waits for its locks counts for maxParallel; at most 50 items of a run with locks are under
	// way at the same time, and one of each step whatever the others do. At most 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Locks []LockRequest `json:"locks,omitempty"`
}

// ItemFailureAction says what a failed item means for its step.
//
// +kubebuilder:validation:Enum=FailStep;Collect
type ItemFailureAction string

const (
	// FailStep makes the step fail with its first failed item.
	FailStep ItemFailureAction = "FailStep"
	// Collect lets the step succeed whatever becomes of its items.
	Collect ItemFailureAction = "Collect"
)

// ForEachStatus is the state of the items of a step, by index from 0. Its size depends on how many
// items are under way, not on how many there are.
type ForEachStatus struct {
	// total is the number of items.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Total int32 `json:"total"`
	// begun is how many items were begun: those from this index on were not.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Begun int32 `json:"begun,omitempty"`
	// succeeded is how many items succeeded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded,omitempty"`
	// failed is how many items failed for good.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed,omitempty"`
	// failedItems are the items that failed for good, as ranges such as "0-5,7"; only the first
	// ones if there are many of them in the run.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	FailedItems string `json:"failedItems,omitempty"`
	// groups are the items under way: those that are at the same point. Items that are in none of
	// them and were begun are over.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Groups []ItemGroup `json:"groups,omitempty"`
	// locks are those that items under way have, and those that they wait for.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Locks []ItemLocks `json:"locks,omitempty"`
	// outputs are those of items that succeeded, as [[item, output], ...], until they are put
	// together as the step's output.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Outputs *runtime.RawExtension `json:"outputs,omitempty"`
	// outputRefs are where more of them are.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	OutputRefs []OutputReference `json:"outputRefs,omitempty"`
	// outputBytes is the size of all outputs of items so far, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OutputBytes int64 `json:"outputBytes,omitempty"`
}

// ItemLocks are the locks across runs of an item under way.
type ItemLocks struct {
	// item is its index, from 0.
	// +required
	// +kubebuilder:validation:Minimum=0
	Item int32 `json:"item"`
	// locks are those that it has. Absent: it waits for them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Locks []LockHold `json:"locks,omitempty"`
	// lockWait says that it waits for its locks. Absent: it does not.
	// +optional
	LockWait *LocksWait `json:"lockWait,omitempty"`
}

// Part names the item of a step among the parts of its run: "build/3".
func (l ItemLocks) Part(step string) string { return step + "/" + strconv.Itoa(int(l.Item)) }

// ItemGroup is some items of a step that are at the same point. Where there would be too many
// groups, those with about the same times are made one, with the later time. So an item times out
// after twice its time at most, and is tried again later by less than twice the longest wait of the
// step's items, unless those in flight are at so many different attempts that status has no room
// for another one.
type ItemGroup struct {
	// items of the group, as ranges such as "0-5,7".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Items string `json:"items"`
	// phase is Dispatched, Running, BackingOff or, before the locks of the items are had, Pending.
	// +required
	Phase StepPhase `json:"phase"`
	// attempt numbers the last attempt of each of them, from 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt,omitempty"`
	// failures counts the failed attempts of each of them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
	// dispatchedAt is when the attempt was decided.
	// +optional
	DispatchedAt *metav1.MicroTime `json:"dispatchedAt,omitempty"`
	// startedAt is when the workers said Started, rounded up to the second.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// nextAttemptAt is when they are tried again.
	// +optional
	NextAttemptAt *metav1.MicroTime `json:"nextAttemptAt,omitempty"`
	// deadLetter is why the answers of all of them were put aside as dead letters, see the field of
	// that name of a step. Absent: none was.
	// +optional
	DeadLetter DeadLetterReason `json:"deadLetter,omitempty"`
}
