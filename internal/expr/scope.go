package expr

import "sync"

const bytesPerCost = 10 // to read and write JSON

// Scope is variables made ready for many templates. Raw JSON in them is decoded once, when the first template names its
// variable, so rendering one template for each of many items takes the same time per item however many there are, and
// however large the other variables. A Scope is not safe for concurrent use.
type Scope struct {
	shared map[string]func() any
	spent  int
}

// Prepare makes a Scope of v but for its item. The values of v must not change while the Scope is in use.
func Prepare(v Vars) *Scope {
	if v.Inputs == nil {
		v.Inputs = map[string]any{}
	}
	return &Scope{shared: map[string]func() any{
		varInputs: sync.OnceValue(func() any { return decoded(v.Inputs) }),
		varSteps:  sync.OnceValue(func() any { return decoded(v.Steps) }),
		varRun:    sync.OnceValue(func() any { return decoded(v.Run) }),
	}}
}

// Render is the function Render for one item, which is the variable item. Each call has the bounds of a template to itself.
func (s *Scope) Render(raw []byte, item any) ([]byte, error) { return s.render(raw, item, true) }

// Spent is what all calls so far took, in cost units: a call that took all that its bounds allow counts about 2*MaxCost. The bounds
// hold for each call, so who renders for thousands of items at once looks at the sum, stops, and goes on another time.
func (s *Scope) Spent() int { return s.spent }

func (s *Scope) render(raw []byte, item any, hasItem bool) ([]byte, error) {
	w := newWork(MaxCost)
	e := evaluation{activation: s.activation(item, hasItem, w), output: budget{left: MaxRenderedBytes}}
	r := renderer{value: e.value, item: hasItem}
	out, err := r.bytes(raw)
	s.spent += w.spent() + (len(raw)+len(out))/bytesPerCost
	return out, err
}

// activation is what CEL looks names up in. It is made for one evaluation or template: CEL keeps in it what the functions give.
func (s *Scope) activation(item any, hasItem bool, w *work) map[string]any {
	a := map[string]any{varWork: w}
	for name, value := range s.shared {
		a[name] = value
	}
	if hasItem {
		a[varItem] = func() any { return decoded(item) }
	}
	return a
}
