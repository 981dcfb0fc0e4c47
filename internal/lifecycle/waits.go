// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// applySignals applies what came from outside for steps that wait. A rejection ends the run once
// the ends of child runs count.
func applySignals(d *draft) {
	for i := range d.st.Steps {
		if k := waits.In(d.st.Steps[i].Phase); k != nil {
			answerIfSignalled(d, i, k)
		}
	}
	endIfNoneFailed(d)
}

// answerIfSignalled applies the first signal for a step.
func answerIfSignalled(d *draft, i int, k *waits.Kind) {
	if by := signalFor(d, i, k); by != nil {
		endWait(d, i, k.Answer(&d.st.Steps[i], d.texts.fit(by)))
	}
}

// signalFor is the first signal for a step that waits, also while its output is on its way to the
// object store; nil: there is none, or it was sent when the wait, or the time of the run, was over.
func signalFor(d *draft, i int, k *waits.Kind) *Signal {
	if k.Answer == nil {
		return nil
	}
	s := &d.st.Steps[i]
	for n := range d.in.Signals {
		if by := &d.in.Signals[n]; by.Step == s.Name {
			if sentAfter(d, by, k.End(&d.plan.Steps[i], s)) || sentAfter(d, by, stepsEnd(d)) {
				return nil
			}
			return by
		}
	}
	return nil
}

// sentAfter says whether a signal was sent after an end that has come; there is none if it is zero.
func sentAfter(d *draft, by *Signal, end time.Time) bool {
	return !end.IsZero() && by.At.After(end) && !d.now.Before(end)
}

// awaitStep begins a step that needs no worker. One whose time has come is over at once. A step of
// no kind fails.
func awaitStep(d *draft, i int) {
	s, step := &d.st.Steps[i], &d.plan.Steps[i]
	k := waits.Of(step)
	if k == nil {
		stepFailed(d, i, report.NoKind(), v1alpha1.ReasonStepFailed)
		return
	}
	s.Phase, s.StartedAt = k.Phase, bounds.Micro(d.now)
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	if k.Begin != nil {
		k.Begin(step, s, d.now)
	}
	if end := k.End(step, s); !end.IsZero() && !d.now.Before(end) {
		endWait(d, i, k.TimeOut(step, s, end))
		return
	}
	d.event(report.StepWaits(k.Began(step, s)))
	answerIfSignalled(d, i, k) // a signal may come before the step begins to wait
}

// endWait ends the wait of a step, unless its output has to be stored first.
func endWait(d *draft, i int, o waits.Outcome) {
	s := &d.st.Steps[i]
	var output kept
	if o.Error == nil {
		output, o.Error = d.store.keep(&Result{ID: waitID(d.run, s.Name), Result: protocol.Result{Output: o.Output}})
		if output.lacking { // the object store has to take it first
			d.answers.await(waitID(d.run, s.Name))
			return
		}
	}
	if o.Approval != nil {
		d.texts.setApproval(s, o.Approval)
	}
	if o.Error != nil {
		stepFailed(d, i, *o.Error, v1alpha1.ReasonStepFailed)
		return
	}
	d.store.used += len(bounds.Raw(output.output))
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, output.output, output.ref, bounds.Micro(d.now)
	d.event(report.StepWaits(o.Event))
}

// waitID names the output of a step that waited as if it were that of a job.
func waitID(run *v1alpha1.WorkflowRun, step string) protocol.JobID { return status.JobID(run, step, 1) }
