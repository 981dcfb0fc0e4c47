package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
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
	if problems := dag.Validate(d.unborn(), &d.plan); len(problems) > 0 {
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
	if d.run.Spec.Suspend || !status.Admitted(&d.st) || d.outOfTime {
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
	schedule := d.plan.Schedule(d.st.Steps, d.st.Ending != nil, d.now)
	places := dag.Parallel(d.run) - schedule.Active
	for i, ok := schedule.Next(); ok; i, ok = schedule.Next() {
		if dag.TakesPlace(&d.plan.Steps[i]) && places <= 0 {
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
		if status.InFlight(d.st.Steps[i].Phase) {
			places--
		}
		schedule.Release(i)
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
		switch step := &d.plan.Steps[l.step]; {
		case step.Run != nil:
			d.commitChild(l)
		case dag.FansOut(step):
			d.commitItem(l)
		default:
			d.commit(l)
		}
	}
}

// await begins a step that needs no worker. A delay whose time has come is over at once.
func (d *decider) await(i int) {
	s, step := &d.st.Steps[i], &d.plan.Steps[i]
	s.StartedAt = bounds.Micro(d.now)
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	if step.Approval != nil {
		s.Phase = v1alpha1.StepWaiting
		text := fmt.Sprintf("Step %s waits for an approval", s.Name)
		if step.Approval.Message != "" {
			text += ": " + bounds.Printable(step.Approval.Message)
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
		return bounds.Micro(delay.Until.Time)
	case delay != nil && delay.Seconds != nil:
		return bounds.Micro(now.Add(bounds.Seconds(*delay.Seconds)))
	default: // refused by validation
		return bounds.Micro(now)
	}
}

func (d *decider) delayOver(i int) {
	s := &d.st.Steps[i]
	s.Phase, s.CompletedAt = v1alpha1.StepSucceeded, bounds.Micro(d.now)
	d.event(EventNormal, "StepSucceeded", fmt.Sprintf("Step %s: its time has come", s.Name))
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
	switch step := &d.plan.Steps[i]; {
	case !dag.TakesPlace(step):
		return prepared{}
	case dag.FansOut(step):
		return d.prepareList(i)
	}
	input, err := d.view.render(i)
	switch {
	case err != nil:
		return d.unprepared(err)
	case len(input) > maxRendered(&d.plan.Steps[i]):
		_, field := template(&d.plan.Steps[i])
		return prepared{problem: inputTooLarge(field, len(input), maxRendered(&d.plan.Steps[i]))}
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
	s.Phase, s.CompletedAt = v1alpha1.StepSkipped, bounds.Micro(d.now)
	d.event(EventNormal, "StepSkipped", fmt.Sprintf("Step %s was skipped: its when expression is false", s.Name))
}

// commit makes an attempt the step's last one. Its number is new: attempts are never repeated under one id.
func (d *decider) commit(l launch) {
	s := &d.st.Steps[l.step]
	s.Attempt++
	id := status.JobID(d.run, s.Name, s.Attempt)
	s.Phase, s.JobID = v1alpha1.StepDispatched, id.String()
	s.DispatchedAt, s.StartedAt, s.NextAttemptAt, s.DeadLetter = bounds.Micro(d.now), nil, nil, ""
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	topic := d.plan.Steps[l.step].Job.Topic
	d.out.Dispatch = append(d.out.Dispatch, Job{
		ID: id, Topic: topic, Input: l.input, Deadline: dag.AttemptDeadline(d.run, &d.st, &d.plan, l.step, s.DispatchedAt.Time),
	})
}

// Dispatched tells that a job was taken by NATS. It is no event of a decision: nothing has gone out when that is persisted. Of an item
// nothing is told: ok is false.
func Dispatched(j Job) (e Event, ok bool) {
	if j.ID.Item != protocol.NoItem {
		return Event{}, false
	}
	message := fmt.Sprintf("Step %s: attempt %d goes to topic %s", j.ID.Step, j.ID.Attempt, j.Topic)
	return Event{Type: EventNormal, Reason: "StepDispatched", Message: bounds.CutBytes(message, bounds.MaxEventBytes)}, true
}
