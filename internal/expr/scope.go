// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"sync"

	"github.com/syncopate-dev/syncopate/internal/expr/budget"
)

const bytesPerCost = 10 // to read and write JSON

// Scope is variables made ready for many templates. Raw JSON in them is decoded once, when the
// first template names its variable, so rendering one template for each of many items takes the
// same time per item however many there are, and however large the other variables. A Scope is not
// safe for concurrent use.
type Scope struct {
	shared  map[string]func() any
	item    any
	hasItem bool
	spent   int
	limit   int    // of each evaluation, if above 0 and below that of the package
	pause   func() // nil: none
}

// Prepare makes a Scope of v. The values of v must not change while the Scope is in use.
func Prepare(v Vars) *Scope {
	if v.Inputs == nil {
		v.Inputs = map[string]any{}
	}
	return &Scope{item: v.Item, hasItem: v.HasItem, shared: map[string]func() any{
		varInputs: sync.OnceValue(func() any { return decoded(v.Inputs) }),
		varSteps:  sync.OnceValue(func() any { return decoded(v.Steps) }),
		varRun:    sync.OnceValue(func() any { return decoded(v.Run) }),
	}}
}

// Render is Template for one item, which is the variable item. Each call has the bounds of a
// template to itself.
func (s *Scope) Render(raw []byte, item any) ([]byte, error) {
	out, _, err := s.render(raw, item, true)
	return out, err
}

// Template gives the template with its expressions replaced by their values, as JSON with sorted
// keys, in at most MaxRenderedBytes. An empty template stands for {}. Its error is an *Error, or
// wraps ErrTemplate or ErrTooLarge.
func (s *Scope) Template(raw []byte) ([]byte, error) {
	out, compiled, err := s.render(raw, s.item, s.hasItem)
	s.spent += compiled
	return out, err
}

// Spent is what all calls so far took, in cost units: a call that took all that its bounds allow
// counts about 2*MaxCost. The bounds hold for each call, so who renders for thousands of items at
// once looks at the sum, stops, and goes on another time.
func (s *Scope) Spent() int { return s.spent }

// Limit bounds the cost of each evaluation from now on, where that is less than always; 0: as
// always. One that is stopped by it says ErrTooCostly, and may be good.
func (s *Scope) Limit(cost int) { s.limit = cost }

// Pause has a function called now and then by evaluations from now on, for what they take may be
// long; nil: none is.
func (s *Scope) Pause(pause func()) { s.pause = pause }

// work is that of one evaluation.
func (s *Scope) work(most int) *budget.Budget {
	if s.limit > 0 {
		most = min(most, s.limit)
	}
	w := budget.New(most)
	w.Pause = s.pause
	return w
}

// render also says what it takes to compile the template's expressions.
func (s *Scope) render(raw []byte, item any, hasItem bool) (out []byte, compiled int, err error) {
	w := s.work(MaxCost)
	e := evaluation{activation: s.activation(item, hasItem, w), output: room{left: MaxRenderedBytes, memory: MaxListMemory}}
	r := renderer{value: e.value, options: options{item: hasItem}}
	out, err = r.bytes(raw)
	s.spent += w.Spent() + (len(raw)+len(out))/bytesPerCost
	return out, r.compiled, err
}

// activation is what CEL looks names up in. It is made for one evaluation or template: CEL keeps in
// it what the functions give.
func (s *Scope) activation(item any, hasItem bool, w *budget.Budget) map[string]any {
	a := map[string]any{varWork: w}
	for name, value := range s.shared {
		a[name] = value
	}
	if hasItem {
		a[varItem] = func() any { return decoded(item) }
	}
	return a
}
