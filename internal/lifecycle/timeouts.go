// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/retry"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// timeOutItems ends attempts of items whose time is over.
func timeOutItems(d *draft) {
	for i, it := range d.items {
		if it == nil {
			continue
		}
		step := &d.plan.Steps[i]
		for _, g := range it.TimedOut(d.answers.timedOut) {
			e := report.TimedOut(step, g.AsStep(), &d.in)
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

// boundWaits has nothing wait longer than it can have been told to. A time in status is by the
// clock of the operator that wrote it; if that was an hour ahead, the wait would take an hour more,
// whoever owns the run when the clock is right again.
//
// Attempts and admittedAt stay as they were written, and their time-outs come as much later. Times
// of an attempt are those of its job, and the quota has runs in the order of admittedAt.
func boundWaits(d *draft) {
	boundBeginnings(d)
	limit := maxRetryAfter(d)
	for i := range d.st.Steps {
		s, step := &d.st.Steps[i], &d.plan.Steps[i]
		switch {
		case s.Phase == v1alpha1.StepBackingOff:
			s.NextAttemptAt = bounds.Within(s.NextAttemptAt, d.now, retry.Longest(step.Retry.Backoff, s.Failures, limit))
		case s.Phase == v1alpha1.StepWaiting:
			s.StartedAt = bounds.Within(s.StartedAt, d.now, 0)
		case s.Phase == v1alpha1.StepDelayed && step.Delay != nil && step.Delay.Seconds != nil:
			s.DelayedUntil = bounds.Within(s.DelayedUntil, d.now, bounds.Seconds(*step.Delay.Seconds))
		}
	}
	for _, it := range d.items {
		if it != nil {
			it.BoundWaits(limit, d.now)
		}
	}
}

// boundBeginnings has what began in the future, and is bounded from then, begin now.
func boundBeginnings(d *draft) {
	if e := d.st.Ending; e != nil {
		e.AnnouncedAt = *bounds.Within(&e.AnnouncedAt, d.now, 0)
	}
	if a := d.st.Admission; a != nil && a.AdmittedAt == nil {
		if a.QueuedAt != nil {
			a.QueuedAt = bounds.Begun(*a.QueuedAt, d.now)
		}
		boundLockWait(d, a.LockWait)
	}
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		boundLockWait(d, s.LockWait)
		for _, l := range itemLocks(s) {
			boundLockWait(d, l.LockWait)
		}
	}
}

func boundLockWait(d *draft, w *v1alpha1.LocksWait) {
	if w != nil {
		w.StartedAt = *bounds.Begun(w.StartedAt, d.now)
	}
}

// endWaitsInTime ends, where the run is out of time, waits that were over before it was: they were
// when their time came, and not when somebody looks.
func endWaitsInTime(d *draft) {
	end := stepsEnd(d)
	if end.IsZero() || d.now.Before(end) {
		return // others may be over, too: see timeOut
	}
	for i := range d.st.Steps {
		s, step := &d.st.Steps[i], &d.plan.Steps[i]
		k := waits.In(s.Phase)
		if k == nil {
			continue
		}
		if at := k.End(step, s); !at.IsZero() && !at.After(end) {
			timeOutWait(d, i, k, at)
		}
	}
	endIfDone(d)
}

// timeOut ends what waits and whose time is over: attempts in flight fail, and their jobs are
// withdrawn; steps that wait end as their kind says, in a run that is not out of time.
func timeOut(d *draft) {
	for i := range d.st.Steps {
		s, step := &d.st.Steps[i], &d.plan.Steps[i]
		at := waits.StepEnd(step, s)
		if at.IsZero() || d.now.Before(at) {
			continue
		}
		switch k := waits.In(s.Phase); {
		case k != nil && d.answers.outOfTime: // see endWaitsInTime
		case k != nil:
			timeOutWait(d, i, k, at)
		case d.answers.timedOut(at) && !d.answers.arrived(status.JobID(d.run, s.Name, s.Attempt)):
			withdraw(d, i)
			failAttempt(d, i, report.TimedOut(step, s, &d.in), false)
		}
	}
	timeOutItems(d)
	endIfDone(d)
}

// timeOutWait ends the wait of a step whose time is over, once it is known that nobody sent a
// signal in time: what the shell heard by itself may be late.
func timeOutWait(d *draft, i int, k *waits.Kind, at time.Time) {
	switch {
	case signalFor(d, i, k) != nil: // its output waits for the object store
	case k.Answer != nil && at.After(d.in.SignalsAsOf):
		d.out.Needs.Signals = true
	default:
		endWait(d, i, k.TimeOut(&d.plan.Steps[i], &d.st.Steps[i], at))
	}
}
