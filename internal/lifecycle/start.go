package lifecycle

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
)

// firstSight refuses a run that may not or cannot run, before anything is dispatched. The spec is immutable, so this happens
// once: afterwards status has the steps.
func (d *decider) firstSight() {
	if d.seen {
		return
	}
	if d.unpermitted() {
		return
	}
	if problems := validate(&d.run.Spec, &d.plan); len(problems) > 0 {
		d.end(v1alpha1.RunFailed, v1alpha1.ReasonInvalidSpec, problemsText(problems))
	}
}

// launch is an attempt that begins if the whole stage succeeds.
type launch struct {
	step  int
	input json.RawMessage
}

// starts begins attempts in spec order, as far as there are places, and skips what is not wanted. A step's expressions are
// evaluated only when it has a place, so once. Attempts are committed at the end: if an expression fails, the run ends and
// nothing of this stage was dispatched.
func (d *decider) starts() {
	if d.run.Spec.Suspend || !admitted(&d.st) {
		return
	}
	var launches []launch
	queue, waiting, active := d.candidates()
	for places := parallel(d.run) - active; places > 0 && queue.Len() > 0; {
		i := queue.first()
		switch is := d.prepare(i); {
		case is.lacking:
			// What the step reads is not here yet: this decision will be made again, or the step is left for the next one.
		case is.problem != nil:
			d.stepFailed(i, *is.problem, v1alpha1.ReasonStepFailed)
			d.endIfDone()
			return
		case is.skipped:
			d.skip(i)
			d.release(i, queue, waiting)
		default:
			launches = append(launches, launch{i, is.input})
			places--
		}
	}
	// A skipped step may have let in one that stands before it in the spec.
	slices.SortFunc(launches, func(a, b launch) int { return a.step - b.step })
	for _, l := range launches {
		d.commit(l)
	}
	d.endIfDone()
}

// candidates are the steps that could start, how many dependencies each pending step still waits for, and how many attempts
// are in flight.
func (d *decider) candidates() (queue *byIndex, waiting []int, active int) {
	queue, waiting = &byIndex{}, make([]int, len(d.st.Steps))
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		for _, j := range d.plan.deps[i] {
			if !passed(d.st.Steps[j].Phase) {
				waiting[i]++
			}
		}
		switch {
		case inFlight(s.Phase):
			active++
		case s.Phase == v1alpha1.StepBackingOff && due(d.now, s.NextAttemptAt),
			s.Phase == v1alpha1.StepPending && waiting[i] == 0 && !d.plan.broken[i]:
			heap.Push(queue, i)
		}
	}
	return queue, waiting, active
}

// release makes the dependents of a skipped step candidates.
func (d *decider) release(i int, queue *byIndex, waiting []int) {
	for _, j := range d.plan.dependents[i] {
		waiting[j]--
		if waiting[j] == 0 && d.st.Steps[j].Phase == v1alpha1.StepPending && !d.plan.broken[j] {
			heap.Push(queue, j)
		}
	}
}

// prepared is what became of the expressions of a step: its input if all else is zero.
type prepared struct {
	input   json.RawMessage
	skipped bool                // its when expression is false
	lacking bool                // outputs that they read are not loaded
	problem *v1alpha1.StepError // why they cannot be evaluated
}

// prepare evaluates the expressions of a step that has a place.
func (d *decider) prepare(i int) prepared {
	s := &d.st.Steps[i]
	if s.Attempt == math.MaxInt32 {
		return prepared{problem: &v1alpha1.StepError{Code: CodeAttemptsExceeded, Message: "no attempt number is left"}}
	}
	if s.Phase == v1alpha1.StepPending {
		wanted, err := d.view.wanted(i)
		switch {
		case err != nil:
			return d.unprepared(err)
		case !wanted:
			return prepared{skipped: true}
		}
	}
	input, err := d.view.render(i)
	switch {
	case err != nil:
		return d.unprepared(err)
	case len(input) > maxRenderedBytes:
		return prepared{problem: &v1alpha1.StepError{Code: CodeInputTooLarge, Message: fmt.Sprintf(
			"job.input has %d bytes after evaluation, more than %d", len(input), maxRenderedBytes)}}
	default:
		return prepared{input: input}
	}
}

// unprepared says what an error of an expression means.
func (d *decider) unprepared(err error) prepared {
	code := CodeExpressionError
	if errors.Is(err, expr.ErrTooLarge) {
		code = CodeInputTooLarge
	}
	if d.lack(err) {
		return prepared{lacking: true}
	}
	return prepared{problem: &v1alpha1.StepError{Code: code, Message: err.Error()}}
}

func (d *decider) skip(i int) {
	s := &d.st.Steps[i]
	s.Phase, s.CompletedAt = v1alpha1.StepSkipped, microPointer(d.now)
	d.event(EventNormal, "StepSkipped", fmt.Sprintf("Step %s was skipped: its when expression is false", s.Name))
}

// commit makes an attempt the step's last one. Its number is new: attempts are never repeated under one id.
func (d *decider) commit(l launch) {
	s := &d.st.Steps[l.step]
	s.Attempt++
	id := jobID(d.run, s.Name, s.Attempt)
	s.Phase, s.JobID = v1alpha1.StepDispatched, id.String()
	s.DispatchedAt, s.StartedAt, s.NextAttemptAt = microPointer(d.now), nil, nil
	if d.st.StartedAt == nil {
		d.st.StartedAt = secondPointer(d.now)
	}
	topic := d.run.Spec.Steps[l.step].Job.Topic
	d.out.Dispatch = append(d.out.Dispatch, Job{
		ID: id, Topic: topic, Input: l.input, Deadline: attemptDeadline(d.run, &d.st, l.step, s.DispatchedAt.Time),
	})
	d.event(EventNormal, "StepDispatched", fmt.Sprintf("Step %s: attempt %d goes to topic %s", s.Name, s.Attempt, topic))
}

// first takes the first step out; the heap must not be empty.
func (h *byIndex) first() int {
	i := (*h)[0]
	heap.Pop(h)
	return i
}

// byIndex is a heap of steps in spec order.
type byIndex []int

func (h byIndex) Len() int           { return len(h) }
func (h byIndex) Less(a, b int) bool { return h[a] < h[b] }
func (h byIndex) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }

// Push adds a step; heap.Interface.
func (h *byIndex) Push(x any) {
	if i, ok := x.(int); ok {
		*h = append(*h, i)
	}
}

// Pop removes the last one; heap.Interface.
func (h *byIndex) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
