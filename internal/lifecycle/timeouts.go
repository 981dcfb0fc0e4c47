package lifecycle

import (
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// timeouts ends what waits and whose time is over: attempts in flight fail, and their jobs are withdrawn; delays succeed; approvals
// are decided as their steps say.
func (d *decider) timeouts() {
	for i := range d.st.Steps {
		s, step := &d.st.Steps[i], &d.plan.steps[i]
		at := stepEnd(step, s)
		if at.IsZero() || d.now.Before(at) {
			continue
		}
		switch s.Phase {
		case v1alpha1.StepDelayed:
			d.delayOver(i)
		case v1alpha1.StepWaiting:
			if d.decisionOn(i) == nil {
				d.approvalOver(i, at)
			}
		default:
			if d.timedOut(at) && !d.answered(jobID(d.run, s.Name, s.Attempt)) {
				d.withdraw(i)
				d.fail(i, d.timeoutError(step, s), false)
			}
		}
	}
	d.itemTimeouts()
	d.endIfDone()
}

// stepEnd is when a step that waits for something is not to wait any longer; zero: it does not wait, or for ever.
func stepEnd(step *v1alpha1.Step, s *v1alpha1.StepStatus) time.Time {
	switch {
	case s.Phase == v1alpha1.StepDelayed && s.DelayedUntil != nil:
		return s.DelayedUntil.Time
	case s.Phase == v1alpha1.StepWaiting:
		return approvalEnd(step, s)
	default:
		return attemptEnd(step, s)
	}
}

// attemptEnd is when an attempt in flight times out; zero: nothing is in flight.
func attemptEnd(step *v1alpha1.Step, s *v1alpha1.StepStatus) time.Time {
	switch {
	case withWorker(s) && s.Phase == v1alpha1.StepRunning && s.StartedAt != nil:
		return s.StartedAt.Add(attemptTimeout(step))
	case withWorker(s) && s.DispatchedAt != nil:
		return s.DispatchedAt.Add(startTimeout(step))
	default:
		return time.Time{}
	}
}

func (d *decider) timeoutError(step *v1alpha1.Step, s *v1alpha1.StepStatus) v1alpha1.StepError {
	if s.Phase == v1alpha1.StepRunning {
		return v1alpha1.StepError{
			Code:    CodeTimeout,
			Message: fmt.Sprintf("no result within %s of the start at %s%s", attemptTimeout(step), timeText(s.StartedAt), d.unheardText()),
		}
	}
	return v1alpha1.StepError{
		Code:    CodeStartTimeout,
		Message: fmt.Sprintf("no worker answered within %s of the dispatch at %s%s", startTimeout(step), timeText(s.DispatchedAt), d.unheardText()),
	}
}

func (d *decider) withdraw(i int) {
	s, job := &d.st.Steps[i], d.plan.steps[i].Job
	if job == nil {
		return // no status that Decide wrote is like that
	}
	d.out.Withdraw = append(d.out.Withdraw, Withdrawal{ID: jobID(d.run, s.Name, s.Attempt), Topic: job.Topic})
}

// activeDeadline is when an admitted run times out; zero: never, or its steps are over.
func activeDeadline(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if run.Spec.ActiveDeadlineSeconds == nil || !admitted(st) || st.Ending != nil {
		return time.Time{}
	}
	return st.Admission.AdmittedAt.Add(seconds(*run.Spec.ActiveDeadlineSeconds))
}

func admitted(st *v1alpha1.WorkflowRunStatus) bool {
	return st.Admission != nil && st.Admission.AdmittedAt != nil
}

// queueEnd is when a waiting run times out; zero: never. The clock runs from queuedAt. Where that could not be written
// because the lock was never to be had, it runs from creation; but not for a run which was last seen suspended.
func queueEnd(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if run.Spec.QueueTimeoutSeconds == nil || admitted(st) || run.Spec.Suspend {
		return time.Time{}
	}
	wait := seconds(*run.Spec.QueueTimeoutSeconds)
	switch {
	case st.Admission != nil && st.Admission.QueuedAt != nil:
		return st.Admission.QueuedAt.Add(wait)
	case reasonOf(st, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonSuspended:
		return time.Time{}
	default:
		return run.CreationTimestamp.Add(wait)
	}
}

// wake is the earliest time at which this status leads to another decision with no new fact.
func (d *decider) wake() time.Time {
	e := d.noneYet()
	if d.over {
		e.add(expiry(d.run, &d.st))
		return e.after(d.now)
	}
	e.add(activeDeadline(d.run, &d.st))
	e.add(finallyEnd(d.run, &d.st))
	e.add(queueEnd(d.run, &d.st))
	if d.in.Lock.State != LockHeld {
		return e.after(d.now)
	}
	if d.postponed && !d.out.Needs.Outputs() { // else the shell comes again when it has them
		e.at = d.now
	}
	active := d.stepEnds(&e)
	d.itemsWake(&e)
	// A step whose wait is over cannot start without a place, or while the run is suspended: no wake, that takes a fact.
	if !d.run.Spec.Suspend && active < parallel(d.run) {
		for i := range d.st.Steps {
			if s := &d.st.Steps[i]; s.Phase == v1alpha1.StepBackingOff && s.NextAttemptAt != nil {
				e.add(s.NextAttemptAt.Time)
			}
		}
	}
	return e.after(d.now)
}

// stepEnds adds when steps do not wait any longer, and counts the attempts in flight.
func (d *decider) stepEnds(e *earliest) (active int) {
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; s.Phase != v1alpha1.StepWaiting || d.decisionOn(i) == nil { // else it waits for the object store
			e.add(stepEnd(&d.plan.steps[i], s))
		}
		if inFlight(d.st.Steps[i].Phase) {
			active++
		}
	}
	return active
}

// earliest collects moments; zero ones do not count, nor those until beyond, if it is set.
type earliest struct{ at, beyond time.Time }

func (e *earliest) add(t time.Time) {
	if !t.IsZero() && (e.beyond.IsZero() || t.After(e.beyond)) && (e.at.IsZero() || t.Before(e.at)) {
		e.at = t
	}
}

func (e *earliest) after(now time.Time) time.Time {
	if !e.at.IsZero() && !e.at.After(now) {
		return now.Add(minWake)
	}
	return e.at
}

func parallel(run *v1alpha1.WorkflowRun) int {
	return int(positiveOr(run.Spec.MaxParallelSteps, defaultParallel))
}
