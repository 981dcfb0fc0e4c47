// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Workflow is a template that runs follow: its steps are written once, and a run names it in
// spec.workflowRef and gives it inputs. Each version of spec.parameters and spec.template is kept
// as an immutable revision, under a hash of its content, for as long as a run names it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wf,categories=syncopate
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Steps",type=integer,JSONPath=`.status.steps`
// +kubebuilder:printcolumn:name="Revisions",type=integer,JSONPath=`.status.revisions`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Parameters",type=string,priority=1,JSONPath=`.spec.parameters[*].name`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name of a Workflow has at most 63 characters: it is a label of its revisions"
type Workflow struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what runs follow. Written by the user; a change counts for runs that are first
	// seen after it.
	// +required
	Spec WorkflowSpec `json:"spec"`
	// status says which revision is the current one, and whether it can be run. Written by the
	// operator. Until it has been, observedGeneration is -1.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status *WorkflowStatus `json:"status,omitempty"`
}

// WorkflowList is a list of workflows.
//
// +kubebuilder:object:root=true
type WorkflowList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the workflows.
	Items []Workflow `json:"items"`
}

// WorkflowSpec is what runs of a Workflow follow.
type WorkflowSpec struct {
	// parameters are the inputs that runs may give. What is not listed here is refused.
	// At most 50. Absent: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Parameters []Parameter `json:"parameters,omitempty"`
	// template is the work of a run.
	// +required
	Template WorkflowTemplate `json:"template"`
	// revisionHistoryLimit is how many revisions are kept that are not the current one, and that no
	// run names. Default 10.
	// +optional
	// +default=10
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// ParameterType is the JSON type of a parameter.
//
// +kubebuilder:validation:Enum=string;number;integer;boolean;object;array
type ParameterType string

const (
	// ParameterString is a JSON string.
	ParameterString ParameterType = "string"
	// ParameterNumber is any JSON number.
	ParameterNumber ParameterType = "number"
	// ParameterInteger is a whole number from -2^63 to 2^63-1; larger ids are text.
	ParameterInteger ParameterType = "integer"
	// ParameterBoolean is true or false.
	ParameterBoolean ParameterType = "boolean"
	// ParameterObject is a JSON object.
	ParameterObject ParameterType = "object"
	// ParameterArray is a JSON list.
	ParameterArray ParameterType = "array"
)

// Parameter is an input of a Workflow.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enum) || !has(self.type) || self.type == 'string'",message="enum is for parameters of type string"
// +kubebuilder:validation:XValidation:rule="!has(self.pattern) || !has(self.type) || self.type == 'string'",message="pattern is for parameters of type string"
type Parameter struct {
	// name of the input; expressions read it as inputs.NAME.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Name string `json:"name"`
	// type is the JSON type of the value. Default string.
	// +optional
	Type ParameterType `json:"type,omitempty"`
	// description tells people what the parameter means.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// required true refuses runs that do not give a value, unless there is a default. Absent means
	// false.
	// +optional
	Required bool `json:"required,omitempty"`
	// default is the value of runs that give none: any JSON value of the type. Absent: such runs
	// have no input of this name.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Default *runtime.RawExtension `json:"default,omitempty"`
	// enum lists the values that a string may have. At most 50. Absent: any.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=256
	Enum []string `json:"enum,omitempty"`
	// pattern is a regular expression (RE2) that a string has to match; it is not anchored. The
	// patterns of all parameters together may have some 40,000 states, with repetitions written
	// out: 50 times ^[a-z0-9.-]{1,253}$, say. Absent: any string.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Pattern string `json:"pattern,omitempty"`
}

// WorkflowTemplate is the work of a run: what its spec would hold without a Workflow. For whom the
// work is done is said by each run: workloadClass, tenant, priority, idempotencyKey,
// queueTimeoutSeconds, ttlSecondsAfterFinished.
type WorkflowTemplate struct {
	// activeDeadlineSeconds is as in a WorkflowRun, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`
	// finallyTimeoutSeconds is as in a WorkflowRun, in seconds. Default 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	FinallyTimeoutSeconds int32 `json:"finallyTimeoutSeconds,omitempty"`
	// maxParallelSteps is as in a WorkflowRun. Default 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	MaxParallelSteps int32 `json:"maxParallelSteps,omitempty"`
	// locks are as in a WorkflowRun. A Workflow with locks cannot be a child run: the step that is
	// the run has them then. At most 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Locks []LockRequest `json:"locks,omitempty"`
	// steps are as in a WorkflowRun. 1 to 200.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || [self.map(s, s.name)].all(names, names.all(n, names.exists_one(m, m == n)))",optionalOldSelf=true,message="step names must be unique"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(s, [has(s.job), has(s.approval), has(s.delay), has(s.run)].exists_one(k, k))",optionalOldSelf=true,message="each step needs exactly one of job, approval, delay and run"
	Steps []Step `json:"steps"`
	// finally are as in a WorkflowRun. At most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Finally []Step `json:"finally,omitempty"`
	// outputs are as in a WorkflowRun. At most 64 KiB.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Outputs *runtime.RawExtension `json:"outputs,omitempty"`
}

// WorkflowStatus says which revision is the current one.
//
// +structType=atomic
type WorkflowStatus struct {
	// observedGeneration is the metadata.generation that this status reflects; -1: no operator has
	// looked at the workflow yet.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// revision names the current version: 20 hexadecimal digits of a hash of its content.
	// The ControllerRevision "<workflow>-<revision>" has that content.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision,omitempty"`
	// steps is how many steps the template has, those of finally included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Steps int32 `json:"steps,omitempty"`
	// revisions is how many revisions are kept, the current one included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revisions int32 `json:"revisions,omitempty"`
	// retiring are revisions that are about to be deleted: no run may take one. At most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=63
	Retiring []string `json:"retiring,omitempty"`
	// conditions are Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkflowReference names a Workflow of the run's namespace.
type WorkflowReference struct {
	// name of the Workflow.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
	// revision of the Workflow. Absent: the current one when the run is first seen.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	Revision string `json:"revision,omitempty"`
}

// WorkflowRevision is a version of a Workflow.
type WorkflowRevision struct {
	// name of the Workflow.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// revision of the Workflow.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision"`
}
