// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "github.com/syncopate-dev/syncopate/internal/lifecycle/dag"

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

// hasPlace says whether a step has a place by now.
func hasPlace(d *draft, i int) bool {
	return d.launched[i] || dag.HasPlace(&d.plan.Steps[i], &d.st.Steps[i])
}

// mayTake says whether a step may begin as far as places go. Steps that wait need none.
//
// Those that ask for locks are as many as there are places: a grant that finds none is given back,
// and others were refused, or cancelled, for it. The decision is made again with the answers, and
// who waits for locks takes no place. A run and its steps have 64 locks at most, and so many turns.
func (p *places) mayTake(d *draft, i int) bool {
	switch {
	case d.launched[i] || d.asks[i]:
		return false
	case !dag.TakesPlace(&d.plan.Steps[i]) || hasPlace(d, i):
		return true
	case p.free <= 0:
		d.st.Steps[i].LockWait = nil
		return false
	default:
		return len(d.asks) < p.free
	}
}

// note counts the place of a step that had one, or has one now. One that is free now may be for a
// step that was passed over.
func (p *places) note(d *draft, had, has bool) {
	switch {
	case has && !had:
		p.free--
	case had && !has:
		d.placeFreed = true
	}
}
