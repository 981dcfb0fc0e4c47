// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// follow waits until the run shows the decision, where it can do so soon. A decision that is stored
// is no failure if that takes longer.
func (a *app) follow(ctx context.Context, c client.Reader, seen *sighting, made *v1alpha1.StepApproval, limit time.Duration) error {
	run, step := seen.run, made.Spec.Step
	fmt.Fprintf(a.Out, "step %s of run %s/%s: %s (StepApproval %s)\n", step, run.Namespace, run.Name,
		runview.Decided(actions.Status(made), a.Clock.Now()), made.Name)
	if limit == 0 {
		return nil
	}
	if phase := actions.Step(run, step).Phase; phase != v1alpha1.StepWaiting {
		a.note("the step is %s: the decision counts when it begins to wait for approval", phase)
		return nil
	}
	s, late, err := settled(ctx, c, seen, step, limit)
	switch {
	case late && err != nil:
		a.note("whether the run shows it after %s is not known: %s", limit, OneLine(err))
		return nil
	case late:
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

// settled is the status of a step as soon as it is decided or over. late says that
// this takes longer. A decision may end its run, and that may be deleted at once.
func settled(ctx context.Context, c client.Reader, seen *sighting, step string, limit time.Duration) (s v1alpha1.StepStatus, late bool, err error) {
	late, err = until(ctx, limit, func(ctx context.Context) (bool, error) {
		if err := seen.again(ctx, c); err != nil {
			return false, err
		}
		s = actions.Step(seen.run, step)
		return s.Approval != nil || actions.Over(s.Phase), nil
	})
	if gone(err) && !late {
		var last *v1alpha1.WorkflowRun
		if last, err = whenGone(ctx, c, seen, err); err == nil {
			s = actions.Step(last, step)
		}
	}
	return s, late, err
}
