// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LockPolicy tunes the run locks of workload classes, and the delivery of their results.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=lockpol,categories=syncopate
// +kubebuilder:printcolumn:name="Classes",type=string,JSONPath=`.status.effective.classes`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.status.effective.scope`
// +kubebuilder:printcolumn:name="TTL",type=integer,JSONPath=`.status.effective.ttlSeconds`
// +kubebuilder:printcolumn:name="OnFailure",type=string,JSONPath=`.status.effective.onFailure`
// +kubebuilder:printcolumn:name="Wait",type=string,JSONPath=`.status.effective.waitMode`
// +kubebuilder:printcolumn:name="Retry",type=string,JSONPath=`.status.effective.busyRetryDelay`
// +kubebuilder:printcolumn:name="Runs",type=integer,JSONPath=`.status.runs.admitted`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="RolledOut",type=string,JSONPath=`.status.conditions[?(@.type=="RolledOut")].status`
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

	// spec is what the policy says. Written by the platform team; changes take effect at the next
	// take of a lock.
	// +required
	Spec LockPolicySpec `json:"spec"`
	// status says whether the policy is in force. Written by the operator. Until it has been,
	// observedGeneration is -1.
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
	// workloadClasses are the classes that the policy governs; "*" stands for every class that no
	// other policy lists. A class listed by two policies belongs to the older one (by creation,
	// then name); the other is not Ready (ClassConflict). 1 to 50.
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
	// checkpoint says how far a run may be ahead of its status.
	// +optional
	// +kubebuilder:default={}
	Checkpoint CheckpointPolicy `json:"checkpoint,omitempty"`
	// rollout says how an edit of runLock, or of strategy and lock of admission, comes into force.
	// Absent: for all runs at once. Edits of other fields always are.
	// +optional
	Rollout *LockPolicyRollout `json:"rollout,omitempty"`
}
