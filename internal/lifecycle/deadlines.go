// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// shutDown ends the run as its user wishes. Once the finally steps run, Cancel has nothing
// left to change.
func shutDown(d *draft) {
	switch d.run.Spec.Shutdown {
	case v1alpha1.ShutdownTerminate:
		endRun(d, report.Terminated(d.st.Steps))
	case "":
	default: // Cancel, and whatever a later version may add: the wish is to end
		if d.st.Ending != nil {
			return
		}
		endSoon(d, report.Cancelled(d.st.Steps))
	}
}

// endDeleted ends a run that is being deleted, as Terminate does. Its object may stay for a while:
// for its child runs, or for whoever has a finalizer on it.
func endDeleted(d *draft) {
	if d.run.DeletionTimestamp != nil {
		endRun(d, report.Deleted(d.st.Steps))
	}
}

// passDeadlines ends a run that took too long since it was admitted, or waited too long before; and
// one whose finally steps took too long.
func passDeadlines(d *draft) {
	switch at := stepsEnd(d); {
	case d.answers.runTimedOut(at, answerable{
		workers: func() bool { return anyAnswerable(d) },
		signals: func() bool { return lacksSignals(d, at) },
	}):
		endOutOfTime(d, at)
	default:
		passQueueDeadline(d)
	}
}

// endOutOfTime ends spec.steps at activeDeadlineSeconds, or the finally steps at theirs.
func endOutOfTime(d *draft, at time.Time) {
	if d.st.Ending == nil {
		finish(d, report.DeadlineExceeded(d.run, &d.st, unheard(d, at)))
		return
	}
	endAsAnnounced(d, report.FinallyTimedOut(d.run, &d.st, unheard(d, at)))
}

// lacksSignals says whether a step waits for a signal, and it is not known whether one was sent by
// a moment.
func lacksSignals(d *draft, at time.Time) bool {
	if !at.After(d.in.SignalsAsOf) {
		return false
	}
	for i := range d.st.Steps {
		if k := waits.In(d.st.Steps[i].Phase); k != nil && k.Answer != nil && signalFor(d, i, k) == nil {
			return true
		}
	}
	return false
}

// passQueueDeadline ends a run that waited too long for its admission.
func passQueueDeadline(d *draft) {
	if at := status.QueueEnd(d.run, &d.st); !at.IsZero() && !d.now.Before(at) {
		endRun(d, report.QueueTimedOut(d.run, &d.st, &d.in.Lock))
	}
}

// unheard says what a deadline of the run that is over was decided without; "": nothing.
func unheard(d *draft, at time.Time) string {
	lacking := report.LacksAnswers
	switch {
	case len(d.answers.waiting) > 0:
		lacking = report.LacksOutputs
	case lacksSignals(d, at):
		lacking = report.LacksSignals
	case !anyAnswerable(d):
		return ""
	}
	return report.DeadlineUnheard(&d.in.Answers, lacking, at, d.now)
}

// endWithoutRoom ends a run whose status cannot grow: the API server refused a write for its size,
// and not for one of its results.
func endWithoutRoom(d *draft) {
	if d.in.Form == FormFull {
		return
	}
	if d.st.Ending != nil {
		endAsAnnounced(d, report.NoRoom())
		return
	}
	endRun(d, report.NoRoom())
}
