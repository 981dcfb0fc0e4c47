// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// effect is what one result did to a run, as two status writes in a row show it.
type effect struct {
	Job   string // the attempt that ended, or the one that had ended before and was changed once more
	Kind  Ending
	Value string
}

// effects finds what the results in a write did.
func effects(was, next *v1alpha1.WorkflowRun) []effect {
	if next.Unwritten() {
		return nil
	}
	var found []effect
	for i := range next.Status.Steps {
		before := v1alpha1.StepStatus{}
		if was != nil && !was.Unwritten() && i < len(was.Status.Steps) {
			before = was.Status.Steps[i]
		}
		if e, ok := stepEffect(&before, &next.Status.Steps[i]); ok {
			found = append(found, e)
		}
	}
	return found
}

// stepEffect compares two versions of a step. An attempt in flight ends by one result; whatever
// else changes what a result left behind is an effect too, of a result that should have had none.
func stepEffect(was, next *v1alpha1.StepStatus) (effect, bool) {
	e := effect{Job: was.JobID, Value: valueOf(next), Kind: endingOf(was, next)}
	ended := inFlight(was) && (!inFlight(next) || next.Attempt != was.Attempt)
	changed := e.Value != valueOf(was) || next.Failures != was.Failures || !moves(was, next)
	if e.Job == "" {
		e.Job = next.JobID // two steps in one write: of an attempt that was never seen in flight
	}
	return e, ended || changed
}

// endingOf is how the attempt ended that a write tells of, if it did.
func endingOf(was, next *v1alpha1.StepStatus) Ending {
	switch failed := next.Failures - was.Failures; {
	case failed > 1:
		return Ending(fmt.Sprintf("%d failures at once", failed))
	case next.Phase == v1alpha1.StepSucceeded:
		return Succeeds
	case next.Phase == v1alpha1.StepFailed:
		return endsRun
	case failed > 0:
		return fails
	default:
		return Retries
	}
}

// moves says whether a step goes on without a result: it starts, starts anew, or stays as it is.
// Its next attempt may come sooner: a wait that a wrong clock made too long is shortened.
func moves(was, next *v1alpha1.StepStatus) bool {
	switch next.Phase {
	case v1alpha1.StepPending, v1alpha1.StepDispatched, v1alpha1.StepRunning:
		return true
	default:
		return was.Phase == next.Phase && was.Attempt == next.Attempt &&
			was.CompletedAt.Equal(next.CompletedAt) && (was.NextAttemptAt.Equal(next.NextAttemptAt) || next.NextAttemptAt != nil && next.NextAttemptAt.Before(was.NextAttemptAt))
	}
}

func inFlight(s *v1alpha1.StepStatus) bool {
	return s.Phase == v1alpha1.StepDispatched || s.Phase == v1alpha1.StepRunning
}
