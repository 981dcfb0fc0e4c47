// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"errors"
	"math"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// prepareList evaluates the items of a step that has a place.
func prepareList(d *draft, i int) prepared {
	list, err := listOfItems(d, i)
	if err != nil {
		return unprepared(d, err)
	}
	return prepared{list: list}
}

// listOfItems is the list of a step with forEach: it has one value for what its expression sees,
// whenever it is evaluated, so it may be remembered.
func listOfItems(d *draft, i int) ([]any, error) {
	name := d.view.ListName(i)
	list, known := d.in.Lists[name]
	if !known {
		list, known = d.out.Lists[name]
	}
	if !known {
		var err error
		if d.view.Done.Enough() {
			return nil, render.ErrEnough
		}
		if list, err = d.view.List(i); err != nil {
			return nil, err
		}
	}
	if d.out.Lists == nil {
		d.out.Lists = map[string][]any{}
	}
	d.out.Lists[name] = list
	return list, nil
}

// rendererOf gives a renderer of the items of a step with forEach; nil: what they read is not here
// yet, or the step has a problem now.
func rendererOf[R any](d *draft, it *fanout.Items, of func(i int, list []any) (*R, error)) *R {
	list, err := listOfItems(d, it.Step)
	if err == nil {
		var r *R
		if r, err = of(it.Step, list); err == nil {
			return r
		}
	}
	it.Problem = unprepared(d, err).problem
	return nil
}

// prepared is what became of the expressions of a step: its input if all else is zero.
type prepared struct {
	input   json.RawMessage
	list    []any               // of a step with forEach
	skipped bool                // its when expression is false
	lacking bool                // outputs that they read are not loaded
	problem *v1alpha1.StepError // why they cannot be evaluated
}

// prepare evaluates the expressions of a step that has a place.
func prepare(d *draft, i int) prepared {
	s := &d.st.Steps[i]
	if s.Attempt == math.MaxInt32 {
		return prepared{problem: report.AttemptsExceeded()}
	}
	if s.Phase == v1alpha1.StepPending {
		wanted, err := d.view.Wanted(i)
		switch {
		case err != nil:
			return unprepared(d, err)
		case !wanted:
			return prepared{skipped: true}
		}
	}
	switch step := &d.plan.Steps[i]; {
	case !dag.TakesPlace(step):
		return prepared{}
	case dag.FansOut(step):
		return prepareList(d, i)
	}
	input, err := d.view.Render(i)
	switch {
	case err != nil:
		return unprepared(d, err)
	case len(input) > render.MaxRendered(&d.plan.Steps[i]):
		_, field := render.Template(&d.plan.Steps[i])
		return prepared{problem: report.InputTooLarge(field, len(input), render.MaxRendered(&d.plan.Steps[i]))}
	default:
		return prepared{input: input}
	}
}

// unprepared says what an error of an expression means.
func unprepared(d *draft, err error) prepared {
	code := facts.CodeExpressionError
	if errors.Is(err, expr.ErrTooLarge) {
		code = facts.CodeInputTooLarge
	}
	if leaveForNext(d, err) || d.store.lack(err) {
		return prepared{lacking: true}
	}
	return prepared{problem: &v1alpha1.StepError{Code: code, Message: err.Error()}}
}
