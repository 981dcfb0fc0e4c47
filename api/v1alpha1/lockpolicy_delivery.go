// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// DeliveryPolicy says what becomes of results that cannot be applied now.
type DeliveryPolicy struct {
	// maxDeliveries is how many deliveries of a result may fail before it is put aside as a dead
	// letter. Only failures of processing it count, such as a write of its effect that the API
	// server refuses: waiting for a lock, for Redis, for room or for an API server that cannot
	// be reached never makes a dead letter. A result for which the run's object has no room is put
	// aside after three at most. The operator counts in memory, so a restart begins
	// anew. Default 100.
	// +optional
	// +default=100
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxDeliveries int32 `json:"maxDeliveries,omitempty"`
	// maxDelaySeconds caps, in seconds, the wait that a worker may ask for with Retry, and the wait
	// before a delivery that failed is repeated. Default 30.
	// +optional
	// +default=30
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxDelaySeconds int32 `json:"maxDelaySeconds,omitempty"`
}
