// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// wakeAt is the earliest time at which this status leads to another decision with no new fact.
func wakeAt(d *draft) time.Time {
	e := d.answers.earliest()
	if d.ended != nil {
		e.add(status.Expiry(d.run, &d.st))
		return e.after(d.now)
	}
	e.add(status.ActiveDeadline(d.run, &d.st))
	e.add(status.FinallyEnd(d.run, &d.st))
	e.add(status.QueueEnd(d.run, &d.st))
	if d.in.Lock.State != LockHeld {
		return e.after(d.now)
	}
	nextDecision(d, &e)
	lockWaits(d, &e)
	templateWait(d, &e)
	stepEnds(d, &e)
	if !d.run.Spec.Suspend {
		nextAttempts(d, &e)
	}
	for _, it := range d.items {
		if it != nil {
			it.Moments(!d.run.Spec.Suspend, forEachSteps(d), e.add)
		}
	}
	return e.after(d.now)
}

// nextDecision adds the next decision if it may go on at once with what this one left.
func nextDecision(d *draft, e *earliest) {
	lacks := d.out.Needs.Outputs()
	if lacks {
		e.beyond = d.now // what is due lacks outputs, which is no moment: the shell comes again when it may have them
	}
	if !lacks && d.left || d.store.postponed && (!lacks || slices.Contains(d.out.Verdicts, Applied)) {
		e.at = d.now // there is room now for what was postponed
	}
}

// nextAttempts adds when steps that back off are tried again. Without a place, or while the run is
// suspended, such a step cannot start: that takes a fact, so there is no moment. One that holds
// locks has its place.
func nextAttempts(d *draft, e *earliest) {
	free := d.plan.Active(d.st.Steps) < dag.Parallel(d.run)
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if s.Phase == v1alpha1.StepBackingOff && s.NextAttemptAt != nil && (free || dag.HasPlace(&d.plan.Steps[i], s)) {
			e.add(s.NextAttemptAt.Time)
		}
	}
}

// stepEnds adds when steps do not wait any longer. A wait that is over lacks what was sent, or the
// object store, which is no moment.
func stepEnds(d *draft, e *earliest) {
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		k, at := waits.In(s.Phase), waits.StepEnd(&d.plan.Steps[i], s)
		if k == nil || at.After(d.now) && signalFor(d, i, k) == nil { // else its output waits for the object store
			e.add(at)
		}
	}
}
