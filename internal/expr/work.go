package expr

import "fmt"

// unitsPerCost is how many units of guarded calls there are for each cost unit, beside it. A unit is some 3 ns, so all calls may
// take about as long as all the rest.
const unitsPerCost = 40

// work is what an evaluation, or all those of one template, may still do. CEL has a limit of its own, but keeps its books on a
// stack that it searches: the time that takes grows with the square of the turns of a loop. And it looks at a call after it
// was made.
type work struct {
	maxCost int
	cost    int   // what is left of maxCost, in cost units
	calls   int   // what is left of maxCost * unitsPerCost
	stopped error // wraps ErrTooCostly once there was not enough of one; then there is no value, whatever CEL makes of it
}

func newWork(maxCost int) *work {
	return &work{maxCost: maxCost, cost: maxCost, calls: maxCost * unitsPerCost}
}

// step takes n cost units, and says whether there were as many.
func (w *work) step(n int) bool {
	if w.cost -= n; w.cost < 0 && w.stopped == nil {
		w.stopped = fmt.Errorf("%w: it needs more than %d units", ErrTooCostly, w.maxCost)
	}
	w.cost = max(0, w.cost)
	return w.stopped == nil
}

// take takes n units for a guarded call, and says whether there were as many.
func (w *work) take(n int) bool {
	if n < 0 || n > w.calls { // n < 0: it overflowed
		n = w.calls
		if w.stopped == nil {
			w.stopped = fmt.Errorf("%w: %w", ErrTooCostly, errOperands)
		}
	}
	w.calls -= n
	return w.stopped == nil
}

// spent is what was taken, in cost units.
func (w *work) spent() int { return w.maxCost - w.cost + w.maxCost - w.calls/unitsPerCost }
