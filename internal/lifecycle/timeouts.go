package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// timeOutItems ends attempts of items whose time is over.
func timeOutItems(d *draft) {
	for i, it := range d.items {
		if it == nil {
			continue
		}
		step := &d.plan.Steps[i]
		for _, g := range it.TimedOut(d.answers.timedOut) {
			e := report.TimedOut(step, g.AsStep(), &d.in.Answers, d.now)
			for item := range g.Set.All() {
				if id := it.JobID(item, g.Attempt); !d.answers.arrived(id) {
					d.out.Withdraw = append(d.out.Withdraw, Withdrawal{ID: id, Topic: step.Job.Topic})
					failItem(d, it, item, e, false)
				}
			}
		}
		settleItems(d, it)
	}
}

// timeOut ends what waits and whose time is over: attempts in flight fail, and their jobs are
// withdrawn; delays succeed; approvals are decided as their steps say.
func timeOut(d *draft) {
	for i := range d.st.Steps {
		s, step := &d.st.Steps[i], &d.plan.Steps[i]
		at := status.StepEnd(step, s)
		if at.IsZero() || d.now.Before(at) {
			continue
		}
		switch s.Phase {
		case v1alpha1.StepDelayed:
			delayOver(d, i)
		case v1alpha1.StepWaiting:
			if decisionOn(d, i) == nil {
				approvalOver(d, i, at)
			}
		default:
			if d.answers.timedOut(at) && !d.answers.arrived(status.JobID(d.run, s.Name, s.Attempt)) {
				withdraw(d, i)
				failAttempt(d, i, report.TimedOut(step, s, &d.in.Answers, d.now), false)
			}
		}
	}
	timeOutItems(d)
	endIfDone(d)
}
