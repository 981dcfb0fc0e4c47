// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// items are those of a step with forEach, and what their expressions see: the same variables but
// the item.
type items struct {
	list  []any
	scope *expr.Scope
	done  *Evaluations
	place string
}

// itemsOf are those of step i. What they read is loaded.
func (v *View) itemsOf(i int, list []any, reads expr.Outputs) (items, error) {
	vars, err := v.varsBut(v.plan.Sees(i), reads)
	if err != nil {
		return items{}, err
	}
	// Decoded only if an expression reads them: the list itself is often there, and long.
	vars.Inputs, vars.Run = json.RawMessage(bounds.Raw(v.run.Spec.Inputs)), v.infoFor(i)
	return items{list, v.Done.scope(vars), v.Done, v.place(fmt.Sprintf("%d/input", i), v.plan.Sees(i), v.plan.IsFinally(i))}, nil
}

// ItemLocks evaluates the locks that the items of a step need. It reads nothing of what their jobs
// need.
type ItemLocks struct {
	items
	locks []v1alpha1.LockRequest
}

// ItemLocks are those of step i.
func (v *View) ItemLocks(i int, list []any) (*ItemLocks, error) {
	locks := v.plan.Steps[i].ForEach.Locks
	reads, err := v.readsOf(v.plan.Sees(i), dag.LockTemplate(locks...), expr.WithItem)
	if err != nil {
		return nil, fmt.Errorf("locks: %w", err)
	}
	all, err := v.itemsOf(i, list, reads)
	if err != nil {
		return nil, err
	}
	return &ItemLocks{all, locks}, nil
}

// Keys are those of the locks that an item needs. Who has forgotten them evaluates them again while
// it waits, so they may not cost much.
func (r *ItemLocks) Keys(item int) ([]any, error) {
	if item >= len(r.list) {
		return nil, fmt.Errorf("locks: there are %d items only", len(r.list))
	}
	raw := dag.LockTemplate(r.locks...)
	text, err := r.done.value(fmt.Sprintf("%s/%d/locks", r.place, item), len(raw), func() (json.RawMessage, int, error) {
		before := r.scope.Spent()
		keys, err := r.scope.Render(raw, r.list[item])
		cost := r.scope.Spent() - before
		if err == nil && cost > bounds.MaxKeysCost {
			err = fmt.Errorf("%w: the keys of an item cost %d, more than %d", expr.ErrTooCostly, cost, bounds.MaxKeysCost)
		}
		return keys, cost, err
	})
	if err != nil {
		return nil, fmt.Errorf("locks: %w", err)
	}
	return listed(text), nil
}

// ItemRenderer renders the inputs of the jobs of a step's items.
type ItemRenderer struct {
	items
	raw []byte
}

// ItemRenderer is that of step i.
func (v *View) ItemRenderer(i int, list []any) (*ItemRenderer, error) {
	raw := bounds.Raw(v.plan.Steps[i].Job.Input)
	if v.Done.tooLarge(len(raw)) {
		return nil, ErrEnough
	}
	reads, err := v.readsOf(v.plan.Sees(i), raw, expr.WithItem)
	if err != nil {
		return nil, fmt.Errorf("job.input: %w", err)
	}
	all, err := v.itemsOf(i, list, reads)
	if err != nil {
		return nil, err
	}
	return &ItemRenderer{all, raw}, nil
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

// leavesOut says whether a quick decision does not look at the input or the locks of the items of
// step i.
func (v *View) leavesOut(i int) bool {
	step := &v.plan.Steps[i]
	return v.Done.tooLarge(len(bounds.Raw(step.Job.Input))) || v.Done.tooLarge(len(dag.LockTemplate(step.ForEach.Locks...)))
}

// withItems are some outputs, and those that the inputs and the locks of the items of step i read.
// Its error is ErrEnough: not all of them are known.
func (v *View) withItems(i int, reads expr.Outputs) (expr.Outputs, error) {
	step := &v.plan.Steps[i]
	for _, raw := range [][]byte{bounds.Raw(step.Job.Input), dag.LockTemplate(step.ForEach.Locks...)} {
		if v.Done.tooLarge(len(raw)) {
			continue // nor is it rendered
		}
		more, err := expr.TemplateOutputs(raw, expr.WithItem, v.Done.metered())
		if errors.Is(err, expr.ErrUnread) {
			return reads, ErrEnough
		}
		if err != nil {
			continue // ItemRenderer and ItemLocks say so
		}
		reads = expr.Outputs{All: reads.All || more.All, Names: slices.Concat(reads.Names, more.Names)}
	}
	return reads, nil
}

// loadedWithItems is loaded for what the list of step i reads, and its items: both are read
// together when a job is rendered again.
func (v *View) loadedWithItems(i int, reads expr.Outputs) error {
	all, err := v.withItems(i, reads)
	if err != nil {
		return err
	}
	return v.loaded(v.plan.Sees(i), all)
}

// ListName names the items of step i by their expression, and by all that it sees. A decision that
// is not written may have evaluated others: it did not know a result yet, or read another version
// of the Workflow. No keys of locks have that name.
func (v *View) ListName(i int) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%x,%s", v.ofRun(), v.plan.Steps[i].ForEach.Items) // a hash never fails
	return v.place(fmt.Sprintf("list/%s/%x", v.steps[i].Name, h.Sum64()), v.plan.Sees(i), v.plan.IsFinally(i))
}

// List evaluates the items of step i.
func (v *View) List(i int) ([]any, error) {
	src := v.plan.Steps[i].ForEach.Items
	reads, err := expr.ListOutputs(src, v.Done.metered())
	if err == nil && v.leavesOut(i) && len(v.offloaded(v.plan.Sees(i), reads)) > 0 {
		return nil, ErrEnough // else nobody would know whether all of it finds room together
	}
	if err == nil {
		err = v.loadedWithItems(i, reads)
	}
	if err != nil {
		return nil, fmt.Errorf("forEach.items: %w", unread(err))
	}
	vars, err := v.varsOf(i, reads)
	if err != nil {
		return nil, err
	}
	scope := v.Done.scope(vars)
	list, err := scope.List(src)
	v.Done.spent(scope.Spent())
	if v.Done.Quick && errors.Is(err, expr.ErrTooCostly) {
		return nil, ErrEnough
	}
	if err != nil {
		return nil, fmt.Errorf("forEach.items: %w", err)
	}
	return list, nil
}
