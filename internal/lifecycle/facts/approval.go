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

// Approvals are the decisions about a run as signals, in the order in which they count: the oldest
// first.
func Approvals(run *v1alpha1.WorkflowRun, all []v1alpha1.StepApproval) []Signal {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b v1alpha1.StepApproval) int {
		if a.Precedes(&b) {
			return -1
		}
		return 1
	})
	var list []Signal
	for i := range all {
		if a := &all[i]; a.Means(run) {
			list = append(list, Signal{
				Name: a.Name, Step: a.Spec.Step, Decision: a.Spec.Decision, Approver: a.Spec.Approver,
				Comment: a.Spec.Comment, Output: outputOf(a), At: a.CreationTimestamp.Time,
			})
		}
	}
	return list
}

func outputOf(a *v1alpha1.StepApproval) json.RawMessage {
	if a.Spec.Output == nil {
		return nil
	}
	return a.Spec.Output.Raw
}
