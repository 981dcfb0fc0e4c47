// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	timeFormat = "2006-01-02T15:04:05Z07:00"
	pollEvery  = 250 * time.Millisecond
)

// follow waits until the run shows the decision, where it can do so soon. A decision that is stored
// is no failure if that takes longer.
func (a *app) follow(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun, made *v1alpha1.StepApproval, limit time.Duration) error {
	step := made.Spec.Step
	fmt.Fprintf(a.Out, "step %s of run %s/%s: %s (StepApproval %s)\n", step, run.Namespace, run.Name,
		runview.Decided(actions.Status(made), a.Clock.Now()), made.Name)
	if limit == 0 {
		return nil
	}
	if phase := actions.Step(run, step).Phase; phase != v1alpha1.StepWaiting {
		a.note("the step is %s: the decision counts when it begins to wait for approval", phase)
		return nil
	}
	s, err := settled(ctx, c, run, step, limit)
	switch {
	case wait.Interrupted(err) && ctx.Err() == nil:
		a.note("the run does not show it after %s; to see why: kubectl syncopate why %s -n %s", limit, run.Name, run.Namespace)
		return nil
	case err != nil:
		return fmt.Errorf("the decision is stored; whether the run shows it: %w", err)
	case s.Approval == nil:
		return fmt.Errorf("the decision came too late: step %s is %s", step, s.Phase)
	case s.Approval.Name != made.Name:
		return fmt.Errorf("the decision came too late: step %s was %s", step, runview.Decided(s.Approval, a.Clock.Now()))
	}
	fmt.Fprintf(a.Out, "step %s is %s\n", step, s.Phase)
	return nil
}

// settled is the status of a step as soon as it is decided or over; the error is for
// wait.Interrupted if that takes longer.
func settled(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun, step string, limit time.Duration) (s v1alpha1.StepStatus, err error) {
	err = wait.PollUntilContextTimeout(ctx, pollEvery, limit, true, func(ctx context.Context) (bool, error) {
		var now v1alpha1.WorkflowRun
		if err := c.Get(ctx, client.ObjectKeyFromObject(run), &now); err != nil {
			return false, err
		}
		if now.UID != run.UID {
			return false, fmt.Errorf("run %s/%s was replaced by another one", run.Namespace, run.Name)
		}
		s = actions.Step(&now, step)
		return s.Approval != nil || actions.Over(s.Phase), nil
	})
	return s, err
}
