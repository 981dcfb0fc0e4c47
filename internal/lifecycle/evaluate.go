package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"

	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// Evaluated is what the expressions of a run gave in the decisions of one pass, so that none is evaluated twice in it, and what that took.
// Decision.Evaluated is a new one; Input.Evaluated is never changed.
type Evaluated struct {
	Cost   int                        // of all of them, in cost units of expr
	Bytes  int                        // of Values
	Valid  bool                       // the spec was validated, and has no mistakes
	Values map[string]json.RawMessage // by place, and by what could be seen from there
}

// errEnough says that an expression is left for a later decision. No step ever fails by it.
var errEnough = errors.New("left for the next decision")

// evaluations are those of one decision.
type evaluations struct {
	known  *Evaluated // of earlier decisions; nil: none
	fresh  Evaluated
	glance bool        // none is to be evaluated
	quick  bool        // only so much that nobody notices
	more   func() bool // whether another one may be, though those so far took what a decision may; nil: always
}

// enough says whether what is not known has to wait.
func (e *evaluations) enough() bool {
	cost, bytes := e.fresh.Cost, e.fresh.Bytes
	if e.known != nil {
		cost, bytes = cost+e.known.Cost, bytes+e.known.Bytes
	}
	return e.glance || e.quick && cost > bounds.MaxQuickCost || (cost > bounds.MaxDecisionCost || bytes > bounds.MaxRenderedTogether) && e.more != nil && !e.more()
}

// limit is what one expression may take; 0: no less than always.
func (e *evaluations) limit() int {
	if e.quick {
		return bounds.MaxQuickCost
	}
	return 0
}

// find is what is known of a place.
func (e *evaluations) find(key string) (v json.RawMessage, ok bool) {
	if e.known != nil {
		if v, ok = e.known.Values[key]; ok {
			return v, true
		}
	}
	v, ok = e.fresh.Values[key]
	return v, ok
}

// value is what an expression, or a template, of so many bytes gives: known, or by f, which says what it took.
func (e *evaluations) value(key string, size int, f func() (json.RawMessage, int, error)) (json.RawMessage, error) {
	if v, ok := e.find(key); ok {
		return v, nil
	}
	if e.enough() || e.quick && size > bounds.MaxQuickBytes {
		return nil, errEnough
	}
	v, cost, err := f()
	e.fresh.Cost += cost + bounds.CostOfPlace
	if e.quick && errors.Is(err, expr.ErrTooCostly) {
		return nil, errEnough
	}
	if err != nil {
		return nil, err
	}
	if e.fresh.Values == nil {
		e.fresh.Values = map[string]json.RawMessage{}
	}
	e.fresh.Values[key] = v
	e.fresh.Bytes += len(v)
	return v, nil
}

// all is what is known after the decision; nil: nothing.
func (e *evaluations) all() *Evaluated {
	if e.fresh.Cost == 0 && !e.fresh.Valid {
		return e.known
	}
	sum := e.fresh
	if e.known == nil {
		return &sum
	}
	sum.Cost, sum.Bytes, sum.Valid = sum.Cost+e.known.Cost, sum.Bytes+e.known.Bytes, sum.Valid || e.known.Valid
	sum.Values = make(map[string]json.RawMessage, len(e.fresh.Values)+len(e.known.Values))
	maps.Copy(sum.Values, e.known.Values)
	maps.Copy(sum.Values, e.fresh.Values)
	return &sum
}

// place names what is evaluated for a step, with all that can be seen from there: two decisions of a pass may know different results, and
// then the same expression may have another value.
func (v *view) place(what string, sees []int, finally bool) string {
	const prime = 1099511628211 // of FNV-1a
	sum := uint64(prime)
	for _, j := range sees {
		sum = (sum ^ v.state(j)) * prime
	}
	key := fmt.Sprintf("%s/%x", what, sum)
	if e := v.ending; finally && e != nil {
		key += fmt.Sprintf("/%s/%s/%s", e.Phase, e.Reason, e.Message)
	}
	return key
}

// state is a hash of what expressions see of a step.
func (v *view) state(j int) uint64 {
	if known, ok := v.states[j]; ok {
		return known
	}
	h := fnv.New64a()
	s := &v.steps[j]
	fmt.Fprintf(h, "%s,", s.Phase)
	if s.Output != nil {
		_, _ = h.Write(s.Output.Raw) // a hash never fails
	}
	if ref := s.OutputRef; ref != nil {
		fmt.Fprintf(h, ",%s,%s,%d", ref.Name, ref.Digest, ref.Size)
	}
	if e := s.Error; e != nil {
		fmt.Fprintf(h, ",%q,%q", e.Code, e.Message)
	}
	if a := s.Approval; a != nil {
		fmt.Fprintf(h, ",%s,%q,%q", a.Decision, a.Approver, a.Comment)
	}
	if f := s.ForEach; f != nil {
		fmt.Fprintf(h, ",%d,%d,%d", f.Total, f.Succeeded, f.Failed)
	}
	v.states[j] = h.Sum64()
	return v.states[j]
}

// may lets one more expression be evaluated though the decision took what it may, when nothing begins with it otherwise: each decision gets
// ahead, or lacks something of the object store that the next one will have.
func (d *decider) may() bool { return d.progressed == 0 && !d.out.Needs.Outputs() }

// leave says whether an expression is left for the next decision, and has that one made.
func (d *decider) leave(err error) bool {
	if !errors.Is(err, errEnough) {
		return false
	}
	d.postponed, d.left = true, true
	return true
}

// templateBy renders a template, and says what that took.
func (v *view) templateBy(raw []byte, vars expr.Vars) (json.RawMessage, int, error) {
	scope := expr.Prepare(vars)
	scope.Limit(v.done.limit())
	out, err := scope.Template(raw)
	return out, scope.Spent(), err
}

// wantedBy evaluates the when expression of step i.
func (v *view) wantedBy(i int) (json.RawMessage, int, error) {
	vars, err := v.varsOf(i)
	if err != nil {
		return nil, 0, err
	}
	scope := expr.Prepare(vars)
	scope.Limit(v.done.limit())
	ok, err := scope.Condition(v.plan.Steps[i].When)
	if err != nil {
		return nil, scope.Spent(), fmt.Errorf("when: %w", err)
	}
	return fmt.Appendf(nil, "%t", ok), scope.Spent(), nil
}
