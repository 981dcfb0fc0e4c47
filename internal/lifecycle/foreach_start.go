package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// prepareList evaluates the items of a step that has a place.
func (d *decider) prepareList(i int) prepared {
	list, err := d.listOfItems(i)
	if err != nil {
		return d.unprepared(err)
	}
	return prepared{list: list}
}

// listOfItems is the list of a step with forEach: it has one value, whenever it is evaluated, so it may be remembered.
func (d *decider) listOfItems(i int) ([]any, error) {
	name := d.st.Steps[i].Name
	list, known := d.in.Lists[name]
	if !known {
		list, known = d.out.Lists[name]
	}
	if !known {
		var err error
		if d.view.done.enough() {
			return nil, errEnough
		}
		if list, err = d.view.list(i); err != nil {
			return nil, err
		}
	}
	if d.out.Lists == nil {
		d.out.Lists = map[string][]any{}
	}
	d.out.Lists[name] = list
	return list, nil
}

// beginItems begins a step with forEach; its first jobs go out with this decision. An empty list is a success at once.
func (d *decider) beginItems(i int, list []any) {
	s := &d.st.Steps[i]
	s.Phase, s.StartedAt, s.ForEach = v1alpha1.StepRunning, bounds.Micro(d.now), &v1alpha1.ForEachStatus{Total: int32(len(list))}
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	d.items[i] = d.newItems(i)
	d.event(EventNormal, "StepStarted", fmt.Sprintf("Step %s: %d items, for topic %s", s.Name, len(list), d.plan.Steps[i].Job.Topic))
	if len(list) == 0 {
		d.finishItems(d.items[i])
	}
}

// itemLaunches are the jobs of items that go out now. Steps whose last items fail before they are dispatched end by that.
func (d *decider) itemLaunches() []launch {
	var all []launch
	room := bounds.MaxUnderWay
	for _, it := range d.items {
		if it != nil {
			room -= it.underWay()
		}
	}
	for _, it := range d.items {
		if it == nil {
			continue
		}
		some := d.launchesOf(it, room)
		if len(some) == 0 {
			d.settleItems(it)
		} else {
			d.tellItems(it)
		}
		if d.failure != nil {
			return nil
		}
		if d.items[it.step] == nil {
			d.again = true // what waits for the step may start
			continue
		}
		for _, l := range some {
			if l.attempt == 1 {
				room--
			}
		}
		all = append(all, some...)
	}
	return all
}

// launchesOf renders the jobs of the items of a step that go out now: those whose wait is over, then new ones, as far as there are
// places.
func (d *decider) launchesOf(it *items, room int) []launch {
	free := min(int(bounds.PositiveOr(d.plan.Steps[it.step].ForEach.MaxParallel, bounds.DefaultMaxParallel))-it.underWay(), room, int(it.st.Total-it.st.Begun))
	queue := d.dueItems(it)
	if len(queue)+max(0, free) == 0 || it.crowded(d.forEachSteps()) {
		return nil
	}
	r, err := d.rendererOf(it.step)
	if err != nil {
		it.problem = d.unprepared(err).problem // nil: what it reads is not here yet
		return nil
	}
	var launches []launch
	for _, l := range queue {
		launches = d.launchItem(launches, it, r, l)
	}
	launches = d.launchNew(launches, it, r, free)
	if it.problem != nil {
		return nil
	}
	return launches
}

// launchNew adds new items to those that go out. One whose input cannot be evaluated fails, and leaves its place to the next one.
func (d *decider) launchNew(launches []launch, it *items, r *itemRenderer, free int) []launch {
	full := len(launches) + free
	for item := int(it.st.Begun); item < int(it.st.Total) && len(launches) < full; item++ {
		if it.problem != nil || d.left {
			break
		}
		launches = d.launchItem(launches, it, r, launch{step: it.step, item: item, attempt: 1})
	}
	return launches
}

// launchItem adds an item to those that go out, unless its input cannot be evaluated, or this decision has rendered enough.
func (d *decider) launchItem(launches []launch, it *items, r *itemRenderer, l launch) []launch {
	problem := attemptsExceeded(l.attempt)
	if problem == nil {
		var err error
		if l.input, problem, err = r.render(l.item); d.leave(err) {
			return launches // it goes out with the next decision
		}
	}
	d.progressed++
	if problem != nil {
		it.st.Begun = max(it.st.Begun, int32(l.item)+1)
		d.again = d.again || l.attempt != 1 // its place is free
		d.itemFailed(it, l.item, *problem)
		return launches
	}
	return append(launches, l)
}

func attemptsExceeded(attempt int32) *v1alpha1.StepError {
	if attempt > 0 {
		return nil
	}
	return &v1alpha1.StepError{Code: CodeAttemptsExceeded, Message: "no attempt number is left"}
}

// dueItems are the items whose wait for another attempt is over.
func (d *decider) dueItems(it *items) []launch {
	var queue []launch
	for k := range it.groups {
		g := &it.groups[k]
		if g.phase != v1alpha1.StepBackingOff || !bounds.Due(d.now, g.nextAttemptAt) {
			continue
		}
		next := int32(-1)
		if g.attempt < math.MaxInt32 {
			next = g.attempt + 1
		}
		for item := range g.set.All() {
			queue = append(queue, launch{step: it.step, item: item, attempt: next, failures: g.failures})
		}
	}
	return queue
}

// crowded says whether items in flight have so many histories that more groups could not be made few enough: some have to be over
// first.
func (it *items) crowded(active int) bool {
	type apart struct {
		history    [2]int32
		deadLetter v1alpha1.DeadLetterReason
	}
	seen := map[apart]bool{}
	for k := range it.groups {
		if g := &it.groups[k]; status.InFlight(g.phase) && g.set.Len() > 0 {
			seen[apart{g.history(), g.deadLetter}] = true
		}
	}
	return len(seen) >= share(bounds.MaxGroups, active)
}

// commitItem makes an attempt of an item its last one.
func (d *decider) commitItem(l launch) {
	it, s := d.items[l.step], &d.st.Steps[l.step]
	it.take(l.item)
	it.put(l.item, itemGroup{phase: v1alpha1.StepDispatched, attempt: l.attempt, failures: l.failures, dispatchedAt: bounds.Micro(d.now)})
	it.st.Begun = max(it.st.Begun, int32(l.item)+1)
	s.DispatchedAt = bounds.Micro(d.now)
	d.out.Dispatch = append(d.out.Dispatch, Job{
		ID: status.ItemJobID(d.run, s.Name, l.item, l.attempt), Topic: d.plan.Steps[l.step].Job.Topic, Input: l.input,
		Deadline: dag.AttemptDeadline(d.run, &d.st, &d.plan, l.step, s.DispatchedAt.Time),
	})
}

// itemRenderer renders the inputs of the jobs of a step's items, all with the same variables but the item.
type itemRenderer struct {
	raw   []byte
	list  []any
	scope *expr.Scope
	done  *evaluations
	place string
}

func (d *decider) rendererOf(i int) (*itemRenderer, error) {
	list, err := d.listOfItems(i)
	if err != nil {
		return nil, err
	}
	return d.view.itemRenderer(i, list)
}

// itemRenderer is that of step i.
func (v *view) itemRenderer(i int, list []any) (*itemRenderer, error) {
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
	scope.Limit(v.done.limit())
	return &itemRenderer{raw: raw, list: list, scope: scope, done: v.done, place: place}, nil
}

// render is the input of the job of an item, or why there is none. Its error is that it is left for the next decision.
func (r *itemRenderer) render(item int) (json.RawMessage, *v1alpha1.StepError, error) {
	if item >= len(r.list) {
		return nil, &v1alpha1.StepError{Code: CodeExpressionError, Message: fmt.Sprintf("there are %d items only", len(r.list))}, nil
	}
	input, err := r.done.value(fmt.Sprintf("%s/%d", r.place, item), len(r.raw), func() (json.RawMessage, int, error) {
		before := r.scope.Spent()
		input, err := r.scope.Render(r.raw, r.list[item])
		return input, r.scope.Spent() - before, err
	})
	switch {
	case errors.Is(err, errEnough):
		return nil, nil, err
	case errors.Is(err, expr.ErrTooLarge):
		return nil, &v1alpha1.StepError{Code: CodeInputTooLarge, Message: "job.input: " + err.Error()}, nil
	case err != nil:
		return nil, &v1alpha1.StepError{Code: CodeExpressionError, Message: "job.input: " + err.Error()}, nil //nolint:nilerr // it is the item's
	default:
		return input, nil, nil
	}
}

// withInput are some outputs, and those that the input of step i reads.
func (v *view) withInput(i int, reads expr.Outputs) expr.Outputs {
	more, err := expr.TemplateOutputs(bounds.Raw(v.plan.Steps[i].Job.Input), expr.WithItem)
	if err != nil {
		return reads // itemRenderer says so
	}
	return expr.Outputs{All: reads.All || more.All, Names: slices.Concat(reads.Names, more.Names)}
}

// list evaluates the items of step i.
func (v *view) list(i int) ([]any, error) {
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
	scope.Limit(v.done.limit())
	list, err := scope.List(src)
	v.done.fresh.Cost += scope.Spent() + bounds.CostOfPlace
	if v.done.quick && errors.Is(err, expr.ErrTooCostly) {
		return nil, errEnough
	}
	if err != nil {
		return nil, fmt.Errorf("forEach.items: %w", err)
	}
	return list, nil
}

// itemsWake adds when something is due among the items of steps.
func (d *decider) itemsWake(e *earliest) {
	for i, it := range d.items {
		if it == nil {
			continue
		}
		for k := range it.groups {
			g := &it.groups[k]
			e.add(groupEnd(&d.plan.Steps[i], g))
			if g.phase == v1alpha1.StepBackingOff && g.nextAttemptAt != nil && !d.run.Spec.Suspend && !it.crowded(d.forEachSteps()) {
				e.add(g.nextAttemptAt.Time)
			}
		}
	}
}

// itemDispatched finds the item of an attempt in flight, and when it was dispatched.
func itemDispatched(s *v1alpha1.StepStatus, id protocol.JobID) (item int, dispatchedAt time.Time, ok bool) {
	groups := groupsOf(s.ForEach)
	item, verdict := judgeItem(s, groups, id)
	if verdict != Applied {
		return 0, time.Time{}, false
	}
	for k := range groups {
		if groups[k].set.Contains(item) && groups[k].dispatchedAt != nil {
			return item, groups[k].dispatchedAt.Time, true
		}
	}
	return 0, time.Time{}, false
}
