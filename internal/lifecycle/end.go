// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// endRun ends the run: unfinished steps are cancelled, jobs in flight withdrawn. See finish for a
// run that may have finally steps.
func endRun(d *draft, e report.End) {
	if d.in.Form == FormBare && e.Phase == v1alpha1.RunSucceeded && d.run.Spec.Outputs != nil {
		e = report.OutputsDoNotFit()
	}
	d.ended = &e
	cancelSteps(d, len(d.st.Steps))
	d.st.Phase, d.st.CompletedAt = e.Phase, bounds.Second(d.now)
	d.event(report.Ended(e))
}

// cancelSteps cancels the unfinished ones of the first n steps.
func cancelSteps(d *draft, n int) {
	for i := range min(n, len(d.st.Steps)) {
		s := &d.st.Steps[i]
		if status.Ended(s.Phase) {
			continue
		}
		if status.WithWorker(s) {
			withdraw(d, i)
		}
		dropItems(d, i)
		s.Phase, s.CompletedAt, s.NextAttemptAt = v1alpha1.StepCancelled, bounds.Micro(d.now), nil
	}
}

// finish ends spec.steps: what is not over is cancelled. Then the run ends, or its finally steps
// run first. A run that was never admitted has nothing to clean up.
func finish(d *draft, e report.End) {
	if len(d.run.Spec.Finally) == 0 || !status.Admitted(&d.st) || d.in.Form != FormFull {
		endRun(d, e)
		return
	}
	d.announced, d.failure = true, nil // the failure is told by the announcement, and ends nothing more
	cancelSteps(d, d.plan.Main)
	d.st.Ending = &v1alpha1.EndingStatus{
		Phase: e.Phase, Reason: e.Reason, Message: bounds.Cut(e.Message, bounds.MaxMessageChars), AnnouncedAt: *bounds.Micro(d.now),
	}
	d.view.Ending = d.st.Ending
	d.event(report.Finalizing(&d.in, d.run.Spec.Suspend, e))
}

func withdraw(d *draft, i int) {
	s, job := &d.st.Steps[i], d.plan.Steps[i].Job
	if job == nil {
		return // no status that Decide wrote is like that
	}
	d.out.Withdraw = append(d.out.Withdraw, Withdrawal{ID: status.JobID(d.run, s.Name, s.Attempt), Topic: job.Topic})
}
