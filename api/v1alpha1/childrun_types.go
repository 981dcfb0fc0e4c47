// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ChildRun is a step that is a run of its own, which its parent starts, owns and waits for. It uses
// the slot of the run at the top, waits for locks by that one's priority and age, and is cancelled,
// terminated and suspended with its parent. Runs may be nested five levels deep, the one at the top
// included.
//
// The step succeeds with the child's status.outputs as its output. It fails if the child does not
// succeed (ChildFailed, ChildCancelled, ChildTimedOut), is deleted (ChildDeleted), is refused by
// the API server (InvalidSpec), or if another run has its name (NameTaken; InvalidSpec after ten
// minutes if creations are refused, and the two cannot be compared). A child is not tried again,
// but its steps are; it is bounded by its own activeDeadlineSeconds. So a step's timeoutSeconds,
// startTimeoutSeconds and retry do not apply to it.
type ChildRun struct {
	// inputs is a JSON object that becomes the spec.inputs of the child. Strings in it may hold
	// ${...} CEL expressions over inputs, steps and run; a string that is one whole expression
	// keeps the type of its value. At most 64 KiB before and after evaluation. Absent means {}.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Inputs *runtime.RawExtension `json:"inputs,omitempty"`
	// spec is that of the child, as in a WorkflowRun: workloadClass, activeDeadlineSeconds,
	// finallyTimeoutSeconds, maxParallelSteps, steps, finally and outputs; or workloadClass and
	// workflowRef, which is resolved when the child is first seen. It is taken as it is:
	// expressions in it are the child's own. It is checked as that of a WorkflowRun when the run at
	// the top is first seen, enums and bounds of its fields included; what it may not have, or does
	// not know, makes that run end as InvalidSpec. What webhooks, policies and the namespace say of
	// the child is known when it is created.
	// +required
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec"`
}

// ChildRunStatus is the run of a step that is a child run.
type ChildRunStatus struct {
	// name of the child, in the namespace of its parent.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// uid of the child. Absent: it is about to be created; it begins when it is named here
	// with its uid.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
	// below is how many runs may be below the child, at any depth.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Below *int32 `json:"below,omitempty"`
}

// ParentStatus is the parent of a child run.
type ParentStatus struct {
	// name of the parent, in the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the parent.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// level says how deep the run is nested; the run at the top is 1. Absent: not known.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=100
	Level int32 `json:"level,omitempty"`
	// below is how many runs may be below this one, at any depth. Absent: not known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Below *int32 `json:"below,omitempty"`
	// root is the name of the run at the top, whose slot the child uses. Absent: not known, the
	// parent was gone.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Root string `json:"root,omitempty"`
	// locks are those that the run is inside of, when it was first seen: of its parent, and of the
	// step whose child it is, and of all above. Its jobs carry their fences.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Locks []LockHold `json:"locks,omitempty"`
}

// ClaimsParent is the parent of a run: the one that status has pinned or, before the run's first
// write under its lock, the controller among its owners if that is a run or, where it has no
// controller, the one that AnnotationParent names. nil: it has none, and never will. What the
// metadata says is a claim of whoever created the run: it is true only if the parent's status names
// the run.
func (r *WorkflowRun) ClaimsParent() *ParentStatus {
	if r.Status != nil && (r.Status.Parent != nil || r.Status.Fence != nil) {
		return r.Status.Parent
	}
	owner := metav1.GetControllerOf(r)
	switch {
	case owner == nil:
		return r.notedParent()
	case owner.APIVersion != GroupVersion.String() || owner.Kind != "WorkflowRun":
		return nil
	default:
		return &ParentStatus{Name: owner.Name, UID: string(owner.UID)}
	}
}

// notedParent is the parent that AnnotationParent names; nil: none.
func (r *WorkflowRun) notedParent() *ParentStatus {
	name, uid, _ := strings.Cut(r.Annotations[AnnotationParent], "/")
	if name == "" || uid == "" {
		return nil
	}
	return &ParentStatus{Name: name, UID: uid}
}

// ParentNote is the value of AnnotationParent for the children of a run.
func ParentNote(parent *WorkflowRun) string { return parent.Name + "/" + string(parent.UID) }
