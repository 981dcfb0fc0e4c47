// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// StepApproval decides one approval step of one run. The permission to create one is the permission
// to approve; the shipped ValidatingAdmissionPolicy makes sure that spec.approver is who creates
// it. The first one for a step counts. It belongs to its run and is deleted with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=syncopate
// +kubebuilder:selectablefield:JSONPath=`.spec.run`
// +kubebuilder:printcolumn:name="Run",type=string,JSONPath=`.spec.run`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.spec.step`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.spec.decision`
// +kubebuilder:printcolumn:name="Approver",type=string,JSONPath=`.spec.approver`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StepApproval struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the decision. Written by the approver; immutable.
	// +required
	Spec StepApprovalSpec `json:"spec"`
}

// Means says whether the decision is about this very run: one of its namespace and name that has
// the UID in spec.runUID or, where there is none, was created in an earlier second than the
// decision. Otherwise a run could be decided by what was said of an earlier one of its name.
func (a *StepApproval) Means(run metav1.Object) bool {
	if a.Namespace != run.GetNamespace() || a.Spec.Run != run.GetName() {
		return false
	}
	if a.Spec.RunUID != "" {
		return a.Spec.RunUID == string(run.GetUID())
	}
	return a.CreationTimestamp.Unix() > run.GetCreationTimestamp().Unix()
}

// Precedes says which of two decisions about a step counts: the one created first or, within a
// second, the first by name.
func (a *StepApproval) Precedes(other *StepApproval) bool {
	if mine, its := a.CreationTimestamp.Unix(), other.CreationTimestamp.Unix(); mine != its {
		return mine < its
	}
	return a.Name < other.Name
}

// OwnerReference is how a StepApproval belongs to its run: it is deleted with it, and does not hold
// up its deletion.
func OwnerReference(run metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: GroupVersion.String(), Kind: "WorkflowRun", Name: run.GetName(), UID: run.GetUID()}
}

// StepApprovalList is a list of decisions.
//
// +kubebuilder:object:root=true
type StepApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the decisions.
	Items []StepApproval `json:"items"`
}

// StepApprovalSpec is a decision about one step.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a decision is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.output) || self.decision == 'Approve'",fieldPath=".output",message="only an approval has an output"
type StepApprovalSpec struct {
	// run is the name of the WorkflowRun in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Run string `json:"run"`
	// runUID is the UID of the run that is meant. Absent: the run of that name that was created in
	// an earlier second than the decision; a later one of the same name is not decided by it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RunUID string `json:"runUID,omitempty"`
	// step is the name of the approval step.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	Step string `json:"step"`
	// decision is Approve or Reject.
	// +required
	Decision ApprovalDecision `json:"decision"`
	// approver is the name of the user who decides, as the API server knows it (kubectl auth
	// whoami). Names of service accounts have up to 340 characters; status shows no more than
	// 253 of them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Approver string `json:"approver"`
	// comment says why. Shown in status and in an event. Absent: no comment.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Comment string `json:"comment,omitempty"`
	// output becomes the output of the step: a JSON object. One of more than 4 KiB, or more than
	// 100 deep, is in outputRef of the step. Absent: none.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Output *runtime.RawExtension `json:"output,omitempty"`
}
