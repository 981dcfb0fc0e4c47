// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Run is what a bug report needs of a run.
type Run struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	UID        string      `json:"uid"`
	Version    string      `json:"resourceVersion"`
	Created    metav1.Time `json:"created"`
	Deleting   bool        `json:"deleting,omitempty"`
	Class      string      `json:"class"`
	Follows    string      `json:"follows,omitempty"`
	Suspended  bool        `json:"suspended,omitempty"`
	Phase      string      `json:"phase,omitempty"`
	Writer     int32       `json:"minWriterVersion,omitempty"`
	Fence      int64       `json:"fence,omitempty"`
	Policy     string      `json:"policy,omitempty"`
	Completed  string      `json:"completedAt,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	Steps      []Step      `json:"steps,omitempty"`
}

// Condition is a condition without its message.
type Condition struct {
	Type    string      `json:"type"`
	Status  string      `json:"status"`
	Reason  string      `json:"reason"`
	Changed metav1.Time `json:"lastTransitionTime"`
}

// Step is a step without what goes in and comes out.
type Step struct {
	Name     string   `json:"name"`
	Topic    string   `json:"topic,omitempty"`
	After    []string `json:"dependsOn,omitempty"`
	ForEach  bool     `json:"forEach,omitempty"`
	Phase    string   `json:"phase,omitempty"`
	Attempt  int32    `json:"attempt,omitempty"`
	Failures int32    `json:"failures,omitempty"`
	Code     string   `json:"errorCode,omitempty"`
}

// RunOf keeps of a run what may be shown.
func RunOf(run *v1alpha1.WorkflowRun) Run {
	r := Run{
		Namespace: run.Namespace, Name: run.Name, UID: string(run.UID), Version: run.ResourceVersion, Created: run.CreationTimestamp,
		Deleting: run.DeletionTimestamp != nil, Class: run.Spec.WorkloadClass, Suspended: run.Spec.Suspend,
	}
	if run.Spec.WorkflowRef != nil {
		r.Follows = run.Spec.WorkflowRef.Name
	}
	of := map[string]*v1alpha1.StepStatus{}
	if st := run.Status; st != nil {
		r.status(st)
		for i := range st.Steps {
			of[st.Steps[i].Name] = &st.Steps[i]
		}
	}
	for _, steps := range [][]v1alpha1.Step{run.Spec.Steps, run.Spec.Finally} {
		for i := range steps {
			r.Steps = append(r.Steps, stepOf(&steps[i], of[steps[i].Name]))
			delete(of, steps[i].Name)
		}
	}
	if run.Status == nil {
		return r
	}
	for i := range run.Status.Steps { // those of a Workflow, which spec does not have
		if s := &run.Status.Steps[i]; of[s.Name] != nil {
			r.Steps = append(r.Steps, stepOf(&v1alpha1.Step{Name: s.Name}, s))
		}
	}
	return r
}

func (r *Run) status(st *v1alpha1.WorkflowRunStatus) {
	r.Phase, r.Writer = string(st.Phase), st.MinWriterVersion
	if st.Fence != nil {
		r.Fence = *st.Fence
	}
	if st.Policy != nil {
		r.Policy = st.Policy.Name
	}
	if st.CompletedAt != nil {
		r.Completed = st.CompletedAt.UTC().Format(metav1.RFC3339Micro)
	}
	for _, c := range st.Conditions {
		r.Conditions = append(r.Conditions, Condition{c.Type, string(c.Status), c.Reason, c.LastTransitionTime})
	}
}

func stepOf(s *v1alpha1.Step, st *v1alpha1.StepStatus) Step {
	out := Step{Name: s.Name, After: s.DependsOn, ForEach: s.ForEach != nil}
	if s.Job != nil {
		out.Topic = s.Job.Topic
	}
	if st != nil {
		out.Phase, out.Attempt, out.Failures = string(st.Phase), st.Attempt, st.Failures
		out.ForEach = out.ForEach || st.ForEach != nil
		if st.Error != nil {
			out.Code = codeOf(st.Error.Code)
		}
	}
	return out
}

// codeOf is a code that the operator gives; one of a worker may say anything.
func codeOf(code string) string {
	ours := []string{
		"Timeout", "StartTimeout", "ExpressionError", "InputTooLarge", "OutputTooLarge", "OutputLost", "ResultRejected", "AttemptsExceeded", "RetryRequested",
		"Unspecified", "Rejected", "ApprovalTimeout", "ChildFailed", "ChildCancelled", "ChildTimedOut", "ChildDeleted", "NameTaken", "InvalidSpec",
		"LockBusy", "LockQueueFull", "LockQueueTimeout", "Superseded", "LockDeadlock", "LockUnusable",
	}
	if slices.Contains(ours, code) {
		return code
	}
	return "(of a worker)"
}
