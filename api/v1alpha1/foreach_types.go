package v1alpha1

// ForEach makes a step one job for each item of a list. The step succeeds when all items are over; its output is the list of theirs, in
// the order of the items, null for an item that has none or that failed.
type ForEach struct {
	// items is one ${...} CEL expression that gives a list, over inputs, steps and run; evaluated when the step starts. At most
	// 10,000 items and 4 MiB; none is a success with the output []. The outputs of all items may have 8 MiB together. A run may have 20
	// steps with forEach, and 2,000 of their jobs at a time.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Items string `json:"items"`
	// maxParallel is how many items may be under way at the same time, those that wait for another attempt included. The step itself
	// counts as one for maxParallelSteps. Default 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxParallel int32 `json:"maxParallel,omitempty"`
	// onItemFailure says what an item means that failed for good, after the attempts that retry allows each of them. FailStep: the step
	// fails at once, and the jobs of other items are taken back. Collect: the others go on, and the step succeeds without the
	// outputs of those that failed. Default FailStep.
	// +optional
	OnItemFailure ItemFailureAction `json:"onItemFailure,omitempty"`
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
