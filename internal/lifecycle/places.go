// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// places are those of maxParallelSteps that nobody has, while steps begin.
type places struct{ free int }

func placesOf(d *draft) *places {
	p := &places{free: dag.Parallel(d.run)}
	for i := range d.st.Steps {
		if hasPlace(d, i) {
			p.free--
		}
	}
	return p
}

// hasPlace says whether a step has a place by now. Who was granted its locks meanwhile has one,
// also before those whose turn comes first: they may have lacked something when it asked.
func hasPlace(d *draft, i int) bool {
	step, s := &d.plan.Steps[i], &d.st.Steps[i]
	granted := dag.TakesPlace(step) && !status.Ended(s.Phase) && d.in.Locks[s.Name].State == facts.LocksHeld
	return granted || d.launched[i] || dag.HasPlace(step, s)
}

// mayTake says whether a step may begin as far as places go. Steps that wait need none. All that
// may get one ask for their locks. Others leave it to these.
func (p *places) mayTake(d *draft, i int) bool {
	step := &d.plan.Steps[i]
	switch {
	case d.launched[i] || d.asks[i]:
		return false
	case !dag.TakesPlace(step) || hasPlace(d, i):
		return true
	case len(step.Locks) > 0:
		return p.free > 0
	default:
		return len(d.asks) < p.free
	}
}

// note counts the place of a step that had one, has one now, or asks for its locks first. One that
// is free now may be for a step that was passed over.
func (p *places) note(d *draft, i int, had bool) {
	switch has := hasPlace(d, i); {
	case d.asks[i]:
		d.out.Needs.Locks[len(d.out.Needs.Locks)-1].Places = p.free
	case has && !had:
		p.free--
	case had && !has:
		d.placeFreed = true
	}
}

// leaveLines ends the waits of steps that have no place to begin in: who is in a line, and cannot
// use what it gets, keeps it from others. While somebody asks there is a place.
func leaveLines(d *draft) {
	if placesOf(d).free > 0 {
		return
	}
	for i := range d.st.Steps {
		if dag.TakesPlace(&d.plan.Steps[i]) && !hasPlace(d, i) {
			d.st.Steps[i].LockWait = nil
		}
	}
}
