// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ErrNotInFlight is returned by JobOf when status does not say that the attempt is with a worker:
// it was answered, withdrawn, or never dispatched. Not worth a retry with the same status.
var ErrNotInFlight = errors.New("attempt is not in flight")

// LostError says that an attempt, or a child run, that has begun cannot be rendered any
// more: status was not written by Decide, or an output is not in the object store any more.
// No retry helps.
type LostError struct{ Cause error }

// Error implements error.
func (e *LostError) Error() string { return e.Cause.Error() }

// Unwrap gives the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// lost makes a LostError of what expressions say, unless it is only that something comes first:
// outputs are to be loaded, or others had the budget.
func lost(err error) error {
	if _, missing := errors.AsType[*MissingError](err); missing || errors.Is(err, ErrEnough) {
		return err
	}
	return &LostError{err}
}

// itemDispatched finds the item of an attempt in flight, and when it was dispatched.
func itemDispatched(s *v1alpha1.StepStatus, id protocol.JobID) (item int, dispatchedAt time.Time, ok bool) {
	groups := fanout.Groups(s.ForEach)
	item, verdict := fanout.Judge(s, groups, id)
	if verdict != facts.Applied {
		return 0, time.Time{}, false
	}
	for k := range groups {
		if groups[k].Set.Contains(item) && groups[k].DispatchedAt != nil {
			return item, groups[k].DispatchedAt.Time, true
		}
	}
	return 0, time.Time{}, false
}

// Outline is a job of step i without its input.
func (r *Rendering) Outline(id protocol.JobID, i int, dispatchedAt time.Time) facts.Job {
	return facts.Job{
		ID: id, Topic: r.plan.Steps[i].Job.Topic, Deadline: dag.AttemptDeadline(r.run, r.run.Status, &r.plan, i, dispatchedAt),
		Locks: facts.FencesOf(r.run.Status, &r.run.Status.Steps[i], id.Item),
	}
}

// Rendering renders jobs of a run again, byte for byte as when they were dispatched, but for the
// deadline of an item, which may be later. It is not safe for concurrent use.
type Rendering struct {
	run   *v1alpha1.WorkflowRun
	plan  dag.Plan
	view  *View
	lists map[string][]any
	items map[int]*ItemRenderer // by step
	made  int                   // jobs
}

// New is that of a run as it is, with outputs in the object store, which may become more while it
// is used, and the Lists of a decision about the run, which may be nil.
func New(run *v1alpha1.WorkflowRun, payloads facts.Payloads, lists map[string][]any) *Rendering {
	r := &Rendering{run: run, lists: lists, items: map[int]*ItemRenderer{}}
	if run != nil && run.Status != nil && status.Aligned(dag.Steps(run), run.Status.Steps) {
		r.plan = dag.Of(run)
		r.view = NewView(run, run.Status, &r.plan, payloads)
	}
	return r
}

// Budget bounds all that is rendered by what the decisions of one pass may take, or by what quick
// ones may: Job says ErrEnough then. If it need not be quick, one job is rendered,
// whatever it takes.
func (r *Rendering) Budget(quick bool) {
	if r.view == nil {
		return
	}
	r.view.Done.Quick, r.view.Done.More = quick, func() bool { return r.made == 0 }
	clear(r.items)          // each expression of theirs has the limit that there was
	r.view.Done.meter = nil // so has the meter
}

// Pause has a function called now and then by what takes long; nil: none is.
func (r *Rendering) Pause(pause func()) {
	if r.view != nil {
		r.view.Done.Pause = pause
	}
}

// Find is the step of an attempt in flight, the item or -1, and when the attempt was dispatched.
func (r *Rendering) Find(id protocol.JobID) (step, item int, dispatchedAt time.Time, ok bool) {
	if r.view == nil {
		return 0, 0, time.Time{}, false
	}
	i, ok := r.plan.Index[id.Step]
	if !ok || r.plan.Steps[i].Job == nil {
		return 0, 0, time.Time{}, false
	}
	s := &r.run.Status.Steps[i]
	if status.IsForEach(s) && r.plan.Steps[i].ForEach != nil {
		item, at, ok := itemDispatched(s, id)
		return i, item, at, ok && id == status.ItemJobID(r.run, s.Name, item, id.Attempt)
	}
	if !status.WithWorker(s) || status.JobID(r.run, s.Name, s.Attempt) != id || s.DispatchedAt == nil {
		return 0, 0, time.Time{}, false
	}
	return i, -1, s.DispatchedAt.Time, true
}

// Job is an attempt in flight, given the outputs that Needs names. Its error wraps ErrNotInFlight,
// a *LostError, a *MissingError, or ErrEnough if there is a budget.
func (r *Rendering) Job(id protocol.JobID) (facts.Job, error) {
	i, item, at, ok := r.Find(id)
	if !ok {
		return facts.Job{}, fmt.Errorf("job %s: %w", id, ErrNotInFlight)
	}
	input, err := r.input(i, item)
	if err != nil {
		return facts.Job{}, fmt.Errorf("job %s: %w", id, lost(err))
	}
	r.made++
	j := r.Outline(id, i, at)
	j.Input = input
	return j, nil
}

func (r *Rendering) input(i, item int) (json.RawMessage, error) {
	if item < 0 {
		return r.view.Render(i)
	}
	if r.items[i] == nil {
		list, known := r.lists[r.view.ListName(i)]
		if !known {
			var err error
			if list, err = r.view.List(i); err != nil {
				return nil, err
			}
		}
		made, err := r.view.ItemRenderer(i, list)
		if err != nil {
			return nil, err
		}
		r.items[i] = made
	}
	input, problem, err := r.items[i].Render(item)
	if problem != nil {
		return nil, errors.New(problem.Message)
	}
	return input, err
}

// Needs names the outputs in the object store that Job needs for an attempt.
func (r *Rendering) Needs(id protocol.JobID) []protocol.OutputRef {
	i, item, _, ok := r.Find(id)
	if !ok || item >= 0 && r.items[i] != nil || r.view.Done.tooLarge(len(bounds.Raw(r.plan.Steps[i].Job.Input))) {
		return nil
	}
	reads, err := r.reads(i, item)
	if err != nil {
		return nil // Job says so
	}
	return r.view.offloaded(r.plan.Sees(i), reads)
}

// reads are the outputs that input has to find loaded.
func (r *Rendering) reads(i, item int) (expr.Outputs, error) {
	step, metered := &r.plan.Steps[i], r.view.Done.metered()
	known := item < 0
	if !known {
		_, known = r.lists[r.view.ListName(i)]
	}
	if known {
		return expr.TemplateOutputs(bounds.Raw(step.Job.Input), append(dag.WithItem(step), metered)...)
	}
	reads, err := expr.ListOutputs(step.ForEach.Items, metered)
	all, lacks := r.view.withItems(i, reads)
	return all, errors.Join(err, lacks)
}
