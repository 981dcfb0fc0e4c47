// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// AsksForApproval says whether decisions about a run are of interest: it goes on, and
// has approval steps.
func AsksForApproval(run *v1alpha1.WorkflowRun) bool {
	if run == nil || status.Finished(run) {
		return false
	}
	return slices.ContainsFunc(run.Spec.Steps, func(s v1alpha1.Step) bool { return s.Approval != nil })
}

// Approvals are the decisions that count about a run as signals.
func Approvals(run *v1alpha1.WorkflowRun, all []v1alpha1.StepApproval) []Signal {
	var list []Signal
	for _, a := range Counting(run, all) {
		list = append(list, Signal{
			Name: a.Name, Step: a.Spec.Step, Decision: a.Spec.Decision, Approver: a.Spec.Approver,
			Comment: a.Spec.Comment, Output: outputOf(&a), At: a.CreationTimestamp.Time,
		})
	}
	return list
}

// Counting are the decisions that count about a run: the oldest about each of its approval steps.
// So who reads very many in parts, of up to 1.5 MiB each, need not keep them all.
func Counting(run *v1alpha1.WorkflowRun, all []v1alpha1.StepApproval) []v1alpha1.StepApproval {
	first := map[string]*v1alpha1.StepApproval{} // by step; nil: nobody has decided
	for i := range run.Spec.Steps {
		if s := &run.Spec.Steps[i]; s.Approval != nil {
			first[s.Name] = nil
		}
	}
	for i := range all {
		a := &all[i]
		if was, asked := first[a.Spec.Step]; asked && a.Means(run) && (was == nil || a.Precedes(was)) {
			first[a.Spec.Step] = a
		}
	}
	counting := make([]v1alpha1.StepApproval, 0, len(first))
	for i := range run.Spec.Steps {
		if a := first[run.Spec.Steps[i].Name]; a != nil {
			counting = append(counting, *a)
		}
	}
	return counting
}

func outputOf(a *v1alpha1.StepApproval) json.RawMessage {
	if a.Spec.Output == nil {
		return nil
	}
	return a.Spec.Output.Raw
}
