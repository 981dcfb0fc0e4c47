package lifecycle

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
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
	if known := d.in.Evaluated; known != nil && known.Valid {
		return
	}
	if problems := validate(d.unborn(), &d.plan); len(problems) > 0 {
		d.end(v1alpha1.RunFailed, v1alpha1.ReasonInvalidSpec, problemsText(problems))
		return
	}
	d.view.done.fresh.Valid = true
}

// launch is a step that begins if the whole stage succeeds.
type launch struct {
	step     int
	item     int // of a step with forEach
	attempt  int32
	failures int32
	input    json.RawMessage
}

// starts begins steps in spec order, as far as there are places, and skips what is not wanted. When the last of spec.steps is over
// by that, the finally steps begin in the same decision.
func (d *decider) starts() {
	if d.run.Spec.Suspend || !admitted(&d.st) || d.outOfTime {
		return
	}
	main := d.st.Ending == nil
	d.startAll()
	if main && d.st.Ending != nil && !d.over {
		d.startAll()
	}
}

// startAll begins steps until none more can begin: one with forEach may end as it begins.
func (d *decider) startAll() {
	for d.again = true; d.again; {
		d.again = false
		d.startSome()
		if d.failure != nil {
			break
		}
	}
	d.endIfDone()
}

// startSome begins steps. The expressions of a step are evaluated only when it has a place, so once. Steps are committed at the end:
// if an expression fails, and the run ends with it, nothing of this was dispatched.
func (d *decider) startSome() {
	var launches []launch
	queue, waiting, active := d.candidates()
	for places := parallel(d.run) - active; queue.Len() > 0; {
		i := queue.first()
		if takesPlace(&d.plan.steps[i]) && places <= 0 {
			continue // approvals and delays need no place
		}
		switch is := d.prepare(i); {
		case is.lacking:
			continue // what the step reads is not here yet: this decision is made again, or the step is left for the next one
		case is.input != nil:
			launches = append(launches, launch{step: i, input: is.input})
			places--
			d.progressed++
			continue
		default:
			d.progressed++
			d.begin(i, is)
		}
		if d.failure != nil {
			return
		}
		if inFlight(d.st.Steps[i].Phase) {
			places--
		}
		d.release(i, queue, waiting)
	}
	if launches = append(launches, d.itemLaunches()...); d.failure == nil {
		d.commitAll(launches)
	}
}

// begin begins a step that is no single job, or ends it at once.
func (d *decider) begin(i int, is prepared) {
	switch {
	case is.problem != nil:
		d.stepFailed(i, *is.problem, v1alpha1.ReasonStepFailed)
	case is.skipped:
		d.skip(i)
	case is.list != nil:
		d.beginItems(i, is.list)
	default:
		d.await(i)
	}
}

func (d *decider) commitAll(launches []launch) {
	// A skipped step may have let in one that stands before it in the spec.
	slices.SortStableFunc(launches, func(a, b launch) int { return a.step - b.step })
	for _, l := range launches {
		switch step := &d.plan.steps[l.step]; {
		case step.Run != nil:
			d.commitChild(l)
		case fansOut(step):
			d.commitItem(l)
		default:
			d.commit(l)
		}
	}
}

// await begins a step that needs no worker. A delay whose time has come is over at once.
func (d *decider) await(i int) {
	s, step := &d.st.Steps[i], &d.plan.steps[i]
	s.StartedAt = microPointer(d.now)
	if d.st.StartedAt == nil {
		d.st.StartedAt = secondPointer(d.now)
	}
	if step.Approval != nil {
		s.Phase = v1alpha1.StepWaiting
		text := fmt.Sprintf("Step %s waits for an approval", s.Name)
		if step.Approval.Message != "" {
			text += ": " + printable(step.Approval.Message)
		}
		d.event(EventNormal, v1alpha1.ReasonWaitingForApproval, text)
		d.approveIfDecided(i) // it may have been decided before it was asked for
		return
	}
	s.Phase, s.DelayedUntil = v1alpha1.StepDelayed, delayEnd(step.Delay, d.now)
	if !d.now.Before(s.DelayedUntil.Time) {
		d.delayOver(i)
		return
	}
	d.event(EventNormal, "StepDelayed", fmt.Sprintf("Step %s waits until %s", s.Name, timeText(s.DelayedUntil)))
}

// delayEnd is when a delay that begins now is over.
func delayEnd(delay *v1alpha1.Delay, now time.Time) *metav1.MicroTime {
	switch {
	case delay != nil && delay.Until != nil:
		return microPointer(delay.Until.Time)
	case delay != nil && delay.Seconds != nil:
		return microPointer(now.Add(seconds(*delay.Seconds)))
	default: // refused by validation
		return microPointer(now)
	}
}

func (d *decider) delayOver(i int) {
	s := &d.st.Steps[i]
	s.Phase, s.CompletedAt = v1alpha1.StepSucceeded, microPointer(d.now)
	d.event(EventNormal, "StepSucceeded", fmt.Sprintf("Step %s: its time has come", s.Name))
}

// candidates are the steps that could start, how many dependencies each pending step still waits for, and how many attempts
// are in flight.
func (d *decider) candidates() (queue *byIndex, waiting []int, active int) {
	queue, waiting = &byIndex{}, make([]int, len(d.st.Steps))
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		for _, j := range d.plan.deps[i] {
			if !d.plan.lets(j, d.st.Steps[j].Phase) {
				waiting[i]++
			}
		}
		switch {
		case inFlight(s.Phase):
			active++
		case s.Phase == v1alpha1.StepBackingOff && due(d.now, s.NextAttemptAt),
			s.Phase == v1alpha1.StepPending && waiting[i] == 0 && d.startable(i):
			heap.Push(queue, i)
		}
	}
	return queue, waiting, active
}

// startable says whether a pending step may start, once what it depends on is over.
func (d *decider) startable(i int) bool {
	return !d.plan.broken[i] && d.plan.isFinally(i) == (d.st.Ending != nil)
}

// release makes the dependents of a step that is over candidates.
func (d *decider) release(i int, queue *byIndex, waiting []int) {
	if !d.plan.lets(i, d.st.Steps[i].Phase) {
		return
	}
	for _, j := range d.plan.dependents[i] {
		waiting[j]--
		if waiting[j] == 0 && d.st.Steps[j].Phase == v1alpha1.StepPending && d.startable(j) {
			heap.Push(queue, j)
		}
	}
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
	switch step := &d.plan.steps[i]; {
	case !takesPlace(step):
		return prepared{}
	case fansOut(step):
		return d.prepareList(i)
	}
	input, err := d.view.render(i)
	switch {
	case err != nil:
		return d.unprepared(err)
	case len(input) > maxRendered(&d.plan.steps[i]):
		_, field := template(&d.plan.steps[i])
		return prepared{problem: inputTooLarge(field, len(input), maxRendered(&d.plan.steps[i]))}
	default:
		return prepared{input: input}
	}
}

func inputTooLarge(field string, n, limit int) *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: CodeInputTooLarge, Message: fmt.Sprintf("%s has %d bytes after evaluation, more than %d", field, n, limit)}
}

// unprepared says what an error of an expression means.
func (d *decider) unprepared(err error) prepared {
	code := CodeExpressionError
	if errors.Is(err, expr.ErrTooLarge) {
		code = CodeInputTooLarge
	}
	if d.leave(err) || d.lack(err) {
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
	s.DispatchedAt, s.StartedAt, s.NextAttemptAt, s.DeadLetter = microPointer(d.now), nil, nil, ""
	if d.st.StartedAt == nil {
		d.st.StartedAt = secondPointer(d.now)
	}
	topic := d.plan.steps[l.step].Job.Topic
	d.out.Dispatch = append(d.out.Dispatch, Job{
		ID: id, Topic: topic, Input: l.input, Deadline: attemptDeadline(d.run, &d.st, &d.plan, l.step, s.DispatchedAt.Time),
	})
}

// Dispatched tells that a job was taken by NATS. It is no event of a decision: nothing has gone out when that is persisted. Of an item
// nothing is told: ok is false.
func Dispatched(j Job) (e Event, ok bool) {
	if j.ID.Item != protocol.NoItem {
		return Event{}, false
	}
	message := fmt.Sprintf("Step %s: attempt %d goes to topic %s", j.ID.Step, j.ID.Attempt, j.Topic)
	return Event{Type: EventNormal, Reason: "StepDispatched", Message: cutBytes(message, maxEventBytes)}, true
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
