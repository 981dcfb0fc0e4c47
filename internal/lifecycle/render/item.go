// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// ItemRenderer renders the inputs of the jobs of a step's items, all with the same variables
// but the item.
type ItemRenderer struct {
	raw   []byte
	list  []any
	scope *expr.Scope
	done  *Evaluations
	place string
}

// ItemRenderer is that of step i.
func (v *View) ItemRenderer(i int, list []any) (*ItemRenderer, error) {
	raw := bounds.Raw(v.plan.Steps[i].Job.Input)
	reads, err := expr.TemplateOutputs(raw, expr.WithItem)
	if err == nil {
		err = v.loaded(v.plan.Sees(i), reads)
	}
	if err != nil {
		return nil, fmt.Errorf("job.input: %w", err)
	}
	vars, err := v.varsBut(v.plan.Sees(i))
	if err != nil {
		return nil, err
	}
	// Decoded only if an expression reads them: the list itself is often there, and long.
	vars.Inputs, vars.Run = json.RawMessage(bounds.Raw(v.run.Spec.Inputs)), v.infoFor(i)
	place := v.place(fmt.Sprintf("%d/input", i), v.plan.Sees(i), v.plan.IsFinally(i))
	scope := expr.Prepare(vars)
	scope.Limit(v.Done.limit())
	return &ItemRenderer{raw: raw, list: list, scope: scope, done: v.Done, place: place}, nil
}

// Render is the input of the job of an item, or why there is none. Its error is that it is left for
// the next decision.
func (r *ItemRenderer) Render(item int) (json.RawMessage, *v1alpha1.StepError, error) {
	if item >= len(r.list) {
		return nil, &v1alpha1.StepError{Code: facts.CodeExpressionError, Message: fmt.Sprintf("there are %d items only", len(r.list))}, nil
	}
	input, err := r.done.value(fmt.Sprintf("%s/%d", r.place, item), len(r.raw), func() (json.RawMessage, int, error) {
		before := r.scope.Spent()
		input, err := r.scope.Render(r.raw, r.list[item])
		return input, r.scope.Spent() - before, err
	})
	switch {
	case errors.Is(err, ErrEnough):
		return nil, nil, err
	case errors.Is(err, expr.ErrTooLarge):
		return nil, &v1alpha1.StepError{Code: facts.CodeInputTooLarge, Message: "job.input: " + err.Error()}, nil
	case err != nil:
		return nil, &v1alpha1.StepError{Code: facts.CodeExpressionError, Message: "job.input: " + err.Error()}, nil //nolint:nilerr // it is the item's
	default:
		return input, nil, nil
	}
}

// withInput are some outputs, and those that the input of step i reads.
func (v *View) withInput(i int, reads expr.Outputs) expr.Outputs {
	more, err := expr.TemplateOutputs(bounds.Raw(v.plan.Steps[i].Job.Input), expr.WithItem)
	if err != nil {
		return reads // ItemRenderer says so
	}
	return expr.Outputs{All: reads.All || more.All, Names: slices.Concat(reads.Names, more.Names)}
}

// List evaluates the items of step i.
func (v *View) List(i int) ([]any, error) {
	src := v.plan.Steps[i].ForEach.Items
	reads, err := expr.ListOutputs(src)
	if err == nil {
		// Both are read together when a job is rendered again.
		err = v.loaded(v.plan.Sees(i), v.withInput(i, reads))
	}
	if err != nil {
		return nil, fmt.Errorf("forEach.items: %w", err)
	}
	vars, err := v.varsOf(i)
	if err != nil {
		return nil, err
	}
	scope := expr.Prepare(vars)
	scope.Limit(v.Done.limit())
	list, err := scope.List(src)
	v.Done.Fresh.Cost += scope.Spent() + bounds.CostOfPlace
	if v.Done.Quick && errors.Is(err, expr.ErrTooCostly) {
		return nil, ErrEnough
	}
	if err != nil {
		return nil, fmt.Errorf("forEach.items: %w", err)
	}
	return list, nil
}
