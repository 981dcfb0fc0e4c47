package facts

import (
	"encoding/json"
	"slices"
	"time"

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

// Approvals are the decisions about a run in the order in which they count: the oldest first.
func Approvals(run *v1alpha1.WorkflowRun, all []v1alpha1.StepApproval) []Approval {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b v1alpha1.StepApproval) int {
		if a.Precedes(&b) {
			return -1
		}
		return 1
	})
	var list []Approval
	for i := range all {
		if a := &all[i]; a.Means(run) {
			list = append(list, Approval{
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

// Approval is a decision about an approval step.
type Approval struct {
	Name     string // of its StepApproval
	Step     string
	Decision v1alpha1.ApprovalDecision
	Approver string
	Comment  string
	Output   json.RawMessage // nil: none
	At       time.Time       // when it was created
}
