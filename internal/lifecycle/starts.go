// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// startSteps begins steps in spec order, as far as there are places, and skips what is not wanted.
// When the last of spec.steps is over by that, the finally steps begin in the same decision.
func startSteps(d *draft) {
	if d.run.Spec.Suspend {
		leaveLockQueues(d)
	}
	if d.run.Spec.Suspend || !status.Admitted(&d.st) || d.answers.outOfTime || d.endsNext {
		return
	}
	d.resultsFirst = false // a step whose expression fails ends the run at once: what began beside it goes out with no decision
	main := d.st.Ending == nil
	startAll(d)
	if main && d.st.Ending != nil && d.ended == nil {
		startAll(d)
	}
}

// startAll begins steps until none more can begin: one with forEach may end as it begins. What goes
// out is committed at the end: if an expression fails, and the run ends with it, nothing of this
// was dispatched.
func startAll(d *draft) {
	d.launches, d.launched, d.asks = nil, map[int]bool{}, map[int]bool{}
	for d.placeFreed = true; d.placeFreed && d.failure == nil; {
		d.placeFreed = false
		startSome(d)
	}
	leaveLines(d)
	if d.failure == nil {
		commitAll(d)
	}
	endIfDone(d)
}

// startSome begins steps. The expressions of a step are evaluated only when it has a place, so
// once.
func startSome(d *draft) {
	schedule, p := d.plan.Schedule(d.st.Steps, d.st.Ending != nil, d.now), placesOf(d)
	for i, ok := schedule.Next(); ok; i, ok = schedule.Next() {
		if !p.mayTake(d, i) {
			continue
		}
		had := hasPlace(d, i)
		switch is := prepareLocked(d, i); {
		case is.lacking: // what the step reads is not here yet: this decision is made again, or the step is left for the next one
		case is.input != nil:
			d.launches, d.launched[i] = append(d.launches, launch{step: i, input: is.input}), true
			d.progressed++
		default:
			d.progressed++
			beginStep(d, i, is)
		}
		if d.failure != nil {
			return
		}
		p.note(d, i, had)
		schedule.Release(i)
	}
	items := itemLaunches(d)
	for _, l := range items {
		d.items[l.step].Launch(l.item, d.now)
	}
	d.launches = append(d.launches, items...)
}

// prepareLocked is prepare of a step that needs its locks, too. They are taken last: what is
// skipped, or cannot begin, needs none.
func prepareLocked(d *draft, i int) prepared {
	if not, ok := mayPrepare(d, i); !ok {
		return not
	}
	is := prepare(d, i)
	if is.lacking || is.skipped || is.problem != nil {
		return is
	}
	if not, ok := lockStep(d, i); !ok {
		return not
	}
	return is
}

// mayPrepare has a step that waits for its locks have them first. It was prepared when it began to
// wait, and its expressions have one value: so what it reads takes nothing of what this decision
// may read. While the store of locks is away, nobody who needs some is prepared, but who has an
// answer.
func mayPrepare(d *draft, i int) (is prepared, ok bool) {
	s := &d.st.Steps[i]
	answer := d.in.Locks[s.Name].State
	switch {
	case d.locksAway && (answer == facts.LocksUnasked || answer == facts.LocksUnavailable) && len(d.plan.Steps[i].Locks) > 0 && len(s.Locks) == 0:
		return prepared{lacking: true}, false
	case s.LockWait != nil:
		return lockStep(d, i)
	default:
		return prepared{}, true
	}
}

// beginStep begins a step that is no single job, or ends it at once.
func beginStep(d *draft, i int, is prepared) {
	switch {
	case is.problem != nil:
		stepFailed(d, i, *is.problem, v1alpha1.ReasonStepFailed)
	case is.skipped:
		skipStep(d, i)
	case is.list != nil:
		beginItems(d, i, is.list)
	default:
		awaitStep(d, i)
	}
}

func skipStep(d *draft, i int) {
	s := &d.st.Steps[i]
	s.Phase, s.CompletedAt = v1alpha1.StepSkipped, bounds.Micro(d.now)
	d.event(report.StepSkipped(s.Name))
}
