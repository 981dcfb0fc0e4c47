package lifecycle

import (
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// timeouts ends what waits and whose time is over: attempts in flight fail, and their jobs are withdrawn; delays succeed; approvals
// are decided as their steps say.
func (d *decider) timeouts() {
	for i := range d.st.Steps {
		s, step := &d.st.Steps[i], &d.plan.Steps[i]
		at := status.StepEnd(step, s)
		if at.IsZero() || d.now.Before(at) {
			continue
		}
		switch s.Phase {
		case v1alpha1.StepDelayed:
			d.delayOver(i)
		case v1alpha1.StepWaiting:
			if d.decisionOn(i) == nil {
				d.approvalOver(i, at)
			}
		default:
			if d.timedOut(at) && !d.answered(status.JobID(d.run, s.Name, s.Attempt)) {
				d.withdraw(i)
				d.fail(i, d.timeoutError(step, s), false)
			}
		}
	}
	d.itemTimeouts()
	d.endIfDone()
}

func (d *decider) timeoutError(step *v1alpha1.Step, s *v1alpha1.StepStatus) v1alpha1.StepError {
	if s.Phase == v1alpha1.StepRunning {
		return v1alpha1.StepError{
			Code:    CodeTimeout,
			Message: fmt.Sprintf("no result within %s of the start at %s%s", status.AttemptTimeout(step), timeText(s.StartedAt), d.unheardText()),
		}
	}
	return v1alpha1.StepError{
		Code:    CodeStartTimeout,
		Message: fmt.Sprintf("no worker answered within %s of the dispatch at %s%s", status.StartTimeout(step), timeText(s.DispatchedAt), d.unheardText()),
	}
}

func (d *decider) withdraw(i int) {
	s, job := &d.st.Steps[i], d.plan.Steps[i].Job
	if job == nil {
		return // no status that Decide wrote is like that
	}
	d.out.Withdraw = append(d.out.Withdraw, Withdrawal{ID: status.JobID(d.run, s.Name, s.Attempt), Topic: job.Topic})
}

// wake is the earliest time at which this status leads to another decision with no new fact.
func (d *decider) wake() time.Time {
	e := d.noneYet()
	if d.over {
		e.add(status.Expiry(d.run, &d.st))
		return e.after(d.now)
	}
	e.add(status.ActiveDeadline(d.run, &d.st))
	e.add(status.FinallyEnd(d.run, &d.st))
	e.add(status.QueueEnd(d.run, &d.st))
	if d.in.Lock.State != LockHeld {
		return e.after(d.now)
	}
	if d.postponed && !d.out.Needs.Outputs() { // else the shell comes again when it has them
		e.at = d.now
	}
	active := d.stepEnds(&e)
	d.itemsWake(&e)
	// A step whose wait is over cannot start without a place, or while the run is suspended: no wake, that takes a fact.
	if !d.run.Spec.Suspend && active < dag.Parallel(d.run) {
		for i := range d.st.Steps {
			if s := &d.st.Steps[i]; s.Phase == v1alpha1.StepBackingOff && s.NextAttemptAt != nil {
				e.add(s.NextAttemptAt.Time)
			}
		}
	}
	return e.after(d.now)
}

// stepEnds adds when steps do not wait any longer, and counts the attempts in flight.
func (d *decider) stepEnds(e *earliest) (active int) {
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; s.Phase != v1alpha1.StepWaiting || d.decisionOn(i) == nil { // else it waits for the object store
			e.add(status.StepEnd(&d.plan.Steps[i], s))
		}
		if status.InFlight(d.st.Steps[i].Phase) {
			active++
		}
	}
	return active
}

// earliest collects moments; zero ones do not count, nor those until beyond, if it is set.
type earliest struct{ at, beyond time.Time }

func (e *earliest) add(t time.Time) {
	if !t.IsZero() && (e.beyond.IsZero() || t.After(e.beyond)) && (e.at.IsZero() || t.Before(e.at)) {
		e.at = t
	}
}

func (e *earliest) after(now time.Time) time.Time {
	if !e.at.IsZero() && !e.at.After(now) {
		return now.Add(bounds.MinWake)
	}
	return e.at
}
