// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"

	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// ErrEnough says that an expression is left for a later decision. No step ever fails by it.
var ErrEnough = errors.New("left for the next decision")

// Evaluations are those of one decision.
type Evaluations struct {
	Known  *facts.Evaluated // of earlier decisions; nil: none
	Fresh  facts.Evaluated
	Glance bool        // none is to be evaluated
	Quick  bool        // only so much that nobody notices
	Pause  func()      // called now and then by what takes long; nil: never
	More   func() bool // whether another one may be, though those so far took what a decision may; nil: always
	meter  *expr.Meter // of what is compiled; nil: nothing was
}

// Enough says whether what is not known has to wait.
func (e *Evaluations) Enough() bool {
	cost, bytes := e.Fresh.Cost, e.Fresh.Bytes
	if e.Known != nil {
		cost, bytes = cost+e.Known.Cost, bytes+e.Known.Bytes
	}
	return e.Glance || e.Quick && cost > bounds.MaxQuickCost || (cost > bounds.MaxDecisionCost || bytes > bounds.MaxRenderedTogether) && e.More != nil && !e.More()
}

// limit is what one expression may take; 0: no less than always.
func (e *Evaluations) limit() int {
	if e.Quick {
		return bounds.MaxQuickCost
	}
	return 0
}

// metered has what takes long pause while expressions are compiled. What that costs is counted
// where they are evaluated. Not so for one that reads what is not loaded yet, which is compiled to
// find that out: so a quick decision stops before it compiles more than it may.
func (e *Evaluations) metered() expr.Option {
	if e.meter == nil {
		e.meter = &expr.Meter{Once: true, Pause: func() bool {
			if e.Pause != nil {
				e.Pause()
			}
			return true
		}}
		if e.Quick {
			e.meter.Most = bounds.MaxQuickCompiled
		}
	}
	return expr.Metered(e.meter)
}

// unread says ErrEnough for an expression that a quick decision does not compile.
func unread(err error) error {
	if errors.Is(err, expr.ErrUnread) {
		return ErrEnough
	}
	return err
}

// tooLarge says whether a template is one that a quick decision does not even compile.
func (e *Evaluations) tooLarge(size int) bool { return e.Quick && size > bounds.MaxQuickBytes }

// spent counts what an evaluation took. Many that are short take long together.
func (e *Evaluations) spent(cost int) {
	e.Fresh.Cost += cost + bounds.CostOfPlace
	if e.Pause != nil {
		e.Pause()
	}
}

// scope is variables ready for expressions, with the bounds of the decision.
func (e *Evaluations) scope(vars expr.Vars) *expr.Scope {
	s := expr.Prepare(vars)
	s.Limit(e.limit())
	s.Pause(e.Pause)
	return s
}

// find is what is known of a place.
func (e *Evaluations) find(key string) (v json.RawMessage, ok bool) {
	if e.Known != nil {
		if v, ok = e.Known.Values[key]; ok {
			return v, true
		}
	}
	v, ok = e.Fresh.Values[key]
	return v, ok
}

// value is what an expression, or a template, of so many bytes gives: known, or by f, which says
// what it took.
func (e *Evaluations) value(key string, size int, f func() (json.RawMessage, int, error)) (json.RawMessage, error) {
	if v, ok := e.find(key); ok {
		return v, nil
	}
	if e.Enough() || e.tooLarge(size) {
		return nil, ErrEnough
	}
	v, cost, err := f()
	if err == nil || cost > 0 { // else what it reads is not there yet
		e.spent(cost)
	}
	if e.Quick && errors.Is(err, expr.ErrTooCostly) {
		return nil, ErrEnough
	}
	if err != nil {
		return nil, err
	}
	if e.Fresh.Values == nil {
		e.Fresh.Values = map[string]json.RawMessage{}
	}
	e.Fresh.Values[key] = v
	e.Fresh.Bytes += len(v)
	return v, nil
}

// All is what is known after the decision; nil: nothing.
func (e *Evaluations) All() *facts.Evaluated {
	if e.Fresh.Cost == 0 && !e.Fresh.Valid {
		return e.Known
	}
	sum := e.Fresh
	if e.Known == nil {
		return &sum
	}
	sum.Cost, sum.Bytes, sum.Valid = sum.Cost+e.Known.Cost, sum.Bytes+e.Known.Bytes, sum.Valid || e.Known.Valid
	sum.Values = make(map[string]json.RawMessage, len(e.Fresh.Values)+len(e.Known.Values))
	maps.Copy(sum.Values, e.Known.Values)
	maps.Copy(sum.Values, e.Fresh.Values)
	return &sum
}

// place names what is evaluated for a step, with all that can be seen from there: two decisions of
// a pass may know different results, and then the same expression may have another value.
func (v *View) place(what string, sees []int, finally bool) string {
	const prime = 1099511628211 // of FNV-1a
	sum := uint64(prime)
	for _, j := range sees {
		sum = (sum ^ v.state(j)) * prime
	}
	key := fmt.Sprintf("%s/%x", what, sum)
	if e := v.Ending; finally && e != nil {
		key += fmt.Sprintf("/%s/%s/%s", e.Phase, e.Reason, e.Message)
	}
	return key
}

// ofRun is a hash of what all expressions see of the run.
func (v *View) ofRun() uint64 {
	if v.runHash == 0 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%q,%s", v.info, bounds.Raw(v.run.Spec.Inputs)) // fmt sorts the keys
		v.runHash = h.Sum64()
	}
	return v.runHash
}

// state is a hash of what expressions see of a step.
func (v *View) state(j int) uint64 {
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

// templateBy renders a template, and says what that took.
func (v *View) templateBy(raw []byte, vars expr.Vars) (json.RawMessage, int, error) {
	scope := v.Done.scope(vars)
	out, err := scope.Template(raw)
	return out, scope.Spent(), err
}

// wantedBy evaluates the when expression of step i.
func (v *View) wantedBy(i int, reads expr.Outputs) (json.RawMessage, int, error) {
	vars, err := v.varsOf(i, reads)
	if err != nil {
		return nil, 0, err
	}
	scope := v.Done.scope(vars)
	ok, err := scope.Condition(v.plan.Steps[i].When)
	if err != nil {
		return nil, scope.Spent(), fmt.Errorf("when: %w", err)
	}
	return fmt.Appendf(nil, "%t", ok), scope.Spent(), nil
}
