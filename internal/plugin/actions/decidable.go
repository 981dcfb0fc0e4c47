// SPDX-License-Identifier: Apache-2.0

package actions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	maxNameChars = 253
	maxListChars = 1000
	pageSize     = 500
	timeFormat   = "2006-01-02T15:04:05Z07:00"
)

// decidable refuses a decision that could have no effect, and says why.
func decidable(run *v1alpha1.WorkflowRun, step string, now time.Time) error {
	named := func(s v1alpha1.Step) bool { return s.Name == step }
	at := slices.IndexFunc(run.Spec.Steps, named)
	if text := unknownSteps(run, at); text != "" {
		return useless("step %s of run %s/%s: %s", step, run.Namespace, run.Name, text)
	}
	if at < 0 && !slices.ContainsFunc(run.Spec.Finally, named) {
		return useless("run %s/%s has no step %q%s", run.Namespace, run.Name, step, choice(run))
	}
	if at < 0 || run.Spec.Steps[at].Approval == nil {
		return useless("step %s of run %s/%s is no approval%s", step, run.Namespace, run.Name, choice(run))
	}
	s := Step(run, step)
	if s.Approval != nil {
		return useless("step %s was decided already: %s", step, runview.Decided(s.Approval, now))
	}
	if err := over(run); err != nil {
		return err
	}
	if Over(s.Phase) {
		return useless("step %s is over (%s): there is nothing to decide", step, s.Phase)
	}
	return nil
}

// unknownSteps is why it is not known of a run of a Workflow whether the step at an index is an
// approval; empty: it is known.
func unknownSteps(run *v1alpha1.WorkflowRun, at int) string {
	switch {
	case run.Spec.WorkflowRef == nil:
		return ""
	case run.Status == nil || run.Status.Workflow == nil:
		return "the run has no steps yet, since its Workflow was not read: try again in a moment"
	case at >= 0 && run.Spec.Steps[at].Job != nil && run.Spec.Steps[at].Job.Topic == "": // as reads.WithSteps makes it of status
		return "whether it is an approval is not known before it waits for one: the steps of the run are in a ControllerRevision (apps) " +
			"of its namespace, which you may not get or which is gone"
	default:
		return ""
	}
}

// choice names the steps that can be decided.
func choice(run *v1alpha1.WorkflowRun) string {
	if names := Approvals(run); len(names) > 0 {
		return "; its approvals are: " + runview.Printable(strings.Join(names, ", "), maxListChars)
	}
	return ", and no approvals at all"
}

// Approvals names the steps of a run that can be decided.
func Approvals(run *v1alpha1.WorkflowRun) []string {
	var names []string
	for i := range run.Spec.Steps {
		if run.Spec.Steps[i].Approval != nil {
			names = append(names, run.Spec.Steps[i].Name)
		}
	}
	return names
}

// Step is the state of a step.
func Step(run *v1alpha1.WorkflowRun, step string) v1alpha1.StepStatus {
	if run.Status != nil {
		for i := range run.Status.Steps {
			if run.Status.Steps[i].Name == step {
				return run.Status.Steps[i]
			}
		}
	}
	return v1alpha1.StepStatus{Name: step, Phase: v1alpha1.StepPending}
}

// Over says whether a step with this phase has ended.
func Over(p v1alpha1.StepPhase) bool {
	return slices.Contains([]v1alpha1.StepPhase{v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped, v1alpha1.StepCancelled}, p)
}

// undecided refuses a decision after one that the run does not show yet: it may be suspended, or
// the step not wait yet. Who may not list decisions learns of that one from the status of the step.
// One page is enough to find one.
func undecided(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun, step string, now time.Time) error {
	var list v1alpha1.StepApprovalList
	err := c.List(ctx, &list, client.InNamespace(run.Namespace), client.MatchingFields{"spec.run": run.Name}, client.Limit(pageSize))
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list decisions: %w", err)
	}
	var first *v1alpha1.StepApproval
	for i := range list.Items {
		if d := &list.Items[i]; d.Spec.Step == step && d.Means(run) && (first == nil || d.Precedes(first)) {
			first = d
		}
	}
	if first == nil {
		return nil
	}
	return useless("step %s was decided already, and the run does not show it yet: %s", step, runview.Decided(Status(first), now))
}
