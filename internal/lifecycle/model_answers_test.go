// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// timeouts are the attempts that a decision ended because their time, or that of the run, was over;
// those apart of which nobody had heard that they began.
func (c *core) timeouts(q *question, v *verdict) (all, unstarted attempts) {
	old, next := &c.statuses[q.status], &c.statuses[v.next]
	if old.status == nil || !v.changed {
		return 0, 0
	}
	byRun := endsByTime(next) && !endsByTime(old)
	if byRun && q.lags {
		all |= v.dropped // another may have had them ahead of this status
	}
	v.withdraw.each(func(bit int) {
		at := c.slots[bit/perStep]
		s := &next.steps[at.step]
		own := s.Phase != v1alpha1.StepCancelled && s.Error != nil && (s.Error.Code == facts.CodeTimeout || s.Error.Code == facts.CodeStartTimeout) &&
			c.attemptOver(q.status, bit, q.now)
		if !byRun && !own {
			return
		}
		all |= 1 << bit
		if own && at.statusOf(old.steps).Phase == v1alpha1.StepDispatched {
			unstarted |= 1 << bit
		}
	})
	return all, unstarted
}

// endsByTime says whether a run ends, or is about to, because of a deadline.
func endsByTime(k *known) bool {
	if k.status == nil {
		return false
	}
	e := k.status.Ending
	reason := status.ReasonOf(k.status, v1alpha1.ConditionFinished)
	return (e != nil && e.Reason == v1alpha1.ReasonDeadlineExceeded) ||
		reason == v1alpha1.ReasonDeadlineExceeded || reason == v1alpha1.ReasonFinallyTimeout
}

// overdue says whether the time of an attempt, or of its run, is over by a status.
func (c *core) overdue(number int32, bit int, now time.Duration) bool {
	st := c.statuses[number].status
	if st == nil {
		return false
	}
	at := epoch.Add(now)
	for _, end := range []time.Time{status.ActiveDeadline(c.spec, st), status.FinallyEnd(c.spec, st)} {
		if !end.IsZero() && !at.Before(end) {
			return true
		}
	}
	return c.attemptOver(number, bit, now)
}

// attemptOver says whether the time of an attempt itself is over by a status.
func (c *core) attemptOver(number int32, bit int, now time.Duration) bool {
	k, at := &c.statuses[number], c.slots[bit/perStep]
	if at.step >= len(k.steps) {
		return false
	}
	step, s := &c.plan.Steps[at.step], &k.steps[at.step]
	end := status.AttemptEnd(step, s)
	if s.ForEach != nil {
		for _, g := range fanout.Groups(s.ForEach) {
			if g.Set.Contains(at.item) {
				end = status.AttemptEnd(step, g.AsStep())
			}
		}
	}
	return !end.IsZero() && !epoch.Add(now).Before(end)
}
