// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"errors"
	"fmt"
)

// UnitsPerCost is how many units of calls there are for each cost unit, beside it. A unit is some 3
// ns, so all calls may take about as long as all the rest.
const UnitsPerCost = 40

// costBetween is the cost between two pauses: some 2 ms.
const costBetween = 10_000

var (
	// ErrTooCostly says that an evaluation was stopped because its budget was spent.
	// No retry helps.
	ErrTooCostly = errors.New("too costly")
	// ErrOperands says that a call with large operands spent it. It wraps nothing and
	// comes with ErrTooCostly.
	ErrOperands = errors.New("operands are too large")
)

// Budget is what an evaluation, or all those of one template, may still do.
type Budget struct {
	Cost  int // what is left for nodes, in cost units
	Units int // what is left for calls with operands

	// Pause is called each time that so much was taken that it took some milliseconds; nil: never.
	Pause func()

	most    int
	since   int // the last pause, in cost units
	stopped error
}

// New makes a budget of so many cost units.
func New(most int) *Budget {
	return &Budget{most: most, Cost: most, Units: most * UnitsPerCost}
}

// Step takes n cost units, and says whether there were as many.
func (b *Budget) Step(n int) bool {
	if b.Cost -= n; b.Cost < 0 && b.stopped == nil {
		b.stopped = fmt.Errorf("%w: it needs more than %d units", ErrTooCostly, b.most)
	}
	b.Cost = max(0, b.Cost)
	b.did(n)
	return b.stopped == nil
}

// did counts what was taken towards the next pause.
func (b *Budget) did(n int) {
	if b.since += n; b.since >= costBetween && b.Pause != nil {
		b.since = 0
		b.Pause()
	}
}

// take takes n units for a call, and says whether there were as many.
func (b *Budget) take(n int) bool {
	if n < 0 || n > b.Units { // n < 0: it overflowed
		n = b.Units
		if b.stopped == nil {
			b.stopped = fmt.Errorf("%w: %w", ErrTooCostly, ErrOperands)
		}
	}
	b.Units -= n
	b.did(n / UnitsPerCost)
	return b.stopped == nil
}

// Err wraps ErrTooCostly once there was not enough: then the evaluation has no value, whatever CEL
// makes of it.
func (b *Budget) Err() error { return b.stopped }

// Spent is what was taken, in cost units.
func (b *Budget) Spent() int { return b.most - b.Cost + b.most - b.Units/UnitsPerCost }
