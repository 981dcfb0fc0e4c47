// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// CheckpointMode says when the status of a run is written.
//
// +kubebuilder:validation:Enum=EveryStep;Coalesced
type CheckpointMode string

// Modes of checkpoints.
const (
	CheckpointEveryStep CheckpointMode = "EveryStep" // before each effect: what status does not say did not happen
	CheckpointCoalesced CheckpointMode = "Coalesced" // a success may have its next steps dispatched first; results wait in NATS until the write
)

// CheckpointPolicy says how far a run may be ahead of its status.
type CheckpointPolicy struct {
	// mode is EveryStep or Coalesced. With EveryStep a step is dispatched after status says so.
	// With Coalesced the steps after one that succeeded are dispatched at once, and one write
	// follows for several steps; their results stay in NATS until then. All else is written first:
	// retries, waits, clean-up, child runs, items, and what ends a run. It asks for a NATS whose
	// data survives: if NATS loses it, steps that succeeded run again where status did not say so
	// yet. Default EveryStep.
	// +optional
	// +default="EveryStep"
	// +kubebuilder:default=EveryStep
	Mode CheckpointMode `json:"mode,omitempty"`
	// maxResults is how many results may be ahead of status, with Coalesced. The next one has it
	// written. Default 64.
	// +optional
	// +default=64
	// +kubebuilder:default=64
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxResults int32 `json:"maxResults,omitempty"`
	// maxDelayMillis is for how long status may lag behind, with Coalesced, in milliseconds. While
	// status writes of the run's namespace wait for each other, it may lag by 2 s. Default 200.
	// +optional
	// +default=200
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=5000
	MaxDelayMillis int32 `json:"maxDelayMillis,omitempty"`
}
