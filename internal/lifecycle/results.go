package lifecycle

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// results applies what workers said. All results of the batch count before one of them ends the run.
func (d *decider) results() {
	d.out.Verdicts = make([]Verdict, len(d.in.Results))
	for k := range d.in.Results {
		d.out.Verdicts[k] = d.apply(&d.in.Results[k])
	}
	d.endIfDone()
}

// judge compares an attempt with the persisted one of its step. Applied means: this attempt is in flight.
func judge(run *v1alpha1.WorkflowRun, steps []v1alpha1.StepStatus, index map[string]int, id protocol.JobID) (int, Verdict) {
	i, known := index[id.Step]
	if !known || i >= len(steps) || id.RunUID != string(run.UID) || id.Item != protocol.NoItem {
		return 0, Ahead
	}
	switch s := &steps[i]; {
	case id.Attempt > s.Attempt:
		return i, Ahead
	case id.Attempt < s.Attempt:
		return i, Stale
	case inFlight(s.Phase):
		return i, Applied
	default:
		return i, Duplicate
	}
}

func (d *decider) apply(r *Result) Verdict {
	i, verdict := judge(d.run, d.st.Steps, d.plan.index, r.ID)
	if verdict != Applied {
		return verdict
	}
	if r.Rejected != "" {
		d.reject(i, r.Rejected)
		return Applied
	}
	switch r.Result.Status {
	case protocol.StatusStarted:
		return d.started(i, r.PublishedAt)
	case protocol.StatusSucceeded:
		d.succeed(i, r.Result.Output)
	case protocol.StatusFailed:
		d.fail(i, workerError(r.Result.Error), r.Result.Final)
	case protocol.StatusRetry:
		d.postpone(i, r.Result)
	default:
		d.reject(i, fmt.Sprintf("status %q", cut(string(r.Result.Status), maxCodeChars)))
	}
	return Applied
}

// started notes that a worker began. The server's clock said when, which may differ from ours: what it says is believed only
// between dispatch and now.
func (d *decider) started(i int, published time.Time) Verdict {
	s := &d.st.Steps[i]
	if s.Phase == v1alpha1.StepRunning {
		return Duplicate
	}
	at := published
	if s.DispatchedAt != nil && at.Before(s.DispatchedAt.Time) {
		at = s.DispatchedAt.Time
	}
	if at.After(d.now) {
		at = d.now
	}
	s.Phase, s.StartedAt = v1alpha1.StepRunning, microPointer(at)
	return Applied
}

func (d *decider) succeed(i int, raw []byte) {
	s := &d.st.Steps[i]
	var output *runtime.RawExtension
	if len(raw) > 0 {
		canonical, err := canonicalJSON(raw)
		if err != nil {
			d.reject(i, "output: "+err.Error())
			return
		}
		// The schema has no null: a null output is an absent one.
		if string(canonical) != "null" {
			output = &runtime.RawExtension{Raw: canonical}
		}
	}
	if output != nil {
		if problem := d.oversize(len(output.Raw)); problem != "" {
			s.Failures = inc(s.Failures)
			d.stepFailed(i, v1alpha1.StepError{Code: CodeOutputTooLarge, Message: problem}, v1alpha1.ReasonOutputTooLarge)
			return
		}
		d.outputBytes += len(output.Raw)
	}
	d.setError(s, nil)
	s.Phase, s.Output, s.CompletedAt = v1alpha1.StepSucceeded, output, microPointer(d.now)
	d.event(EventNormal, "StepSucceeded", fmt.Sprintf("Step %s succeeded (attempt %d)", s.Name, s.Attempt))
}

func (d *decider) oversize(n int) string {
	switch {
	case n > maxOutputBytes:
		return fmt.Sprintf("the output has %d bytes, more than the %d that status holds of one step", n, maxOutputBytes)
	case d.outputBytes+n > maxOutputsBytes:
		return fmt.Sprintf("the outputs of all steps have %d bytes, more than the %d that status holds", d.outputBytes+n, maxOutputsBytes)
	default:
		return ""
	}
}

// reject counts an unusable result as a failed attempt; the bus keeps its bytes as a dead letter.
func (d *decider) reject(i int, why string) {
	s := &d.st.Steps[i]
	message := fmt.Sprintf("result of step %s, attempt %d: %s", s.Name, s.Attempt, why)
	d.deadLettered(message)
	d.fail(i, v1alpha1.StepError{Code: CodeResultRejected, Message: why}, false)
}

// fail ends an attempt as failed: the step backs off, or fails for good.
func (d *decider) fail(i int, e v1alpha1.StepError, final bool) {
	s, step := &d.st.Steps[i], &d.run.Spec.Steps[i]
	s.Failures = inc(s.Failures)
	if final || s.Failures >= positiveOr(step.Retry.MaxFailures, defaultMaxFailures) {
		d.stepFailed(i, e, v1alpha1.ReasonStepFailed)
		return
	}
	d.setError(s, &e)
	d.backOff(s, backoff(step.Retry.Backoff, s.Failures, jobID(d.run, s.Name, s.Attempt)))
	d.event(EventWarning, "StepBackingOff", fmt.Sprintf("Step %s: attempt %d failed, next one at %s: %s",
		s.Name, s.Attempt, timeText(s.NextAttemptAt), errorText(s.Error)))
}

// postpone honours a worker's wish to be asked later. It is no failure; only the run's deadline bounds it.
func (d *decider) postpone(i int, r protocol.Result) {
	s := &d.st.Steps[i]
	if r.Error != nil {
		e := workerError(r.Error)
		d.setError(s, &e)
	}
	limit := positiveOr(int64(d.in.MaxRetryAfter), int64(defaultMaxRetryAfter))
	wait := retryAfter(r.RetryAfterMillis, time.Duration(limit))
	d.backOff(s, wait)
	d.out.Granted = append(d.out.Granted, wait)
	message := fmt.Sprintf("Step %s: the worker of attempt %d asked for a retry at %s", s.Name, s.Attempt, timeText(s.NextAttemptAt))
	if r.RetryAfterMillis > wait.Milliseconds() && wait > minRetryAfter {
		message = fmt.Sprintf("Step %s: the worker of attempt %d asked for a retry in %d ms, more than the policy's %s; it comes at %s",
			s.Name, s.Attempt, r.RetryAfterMillis, wait, timeText(s.NextAttemptAt))
	}
	d.event(EventNormal, "StepBackingOff", message)
}

func (d *decider) backOff(s *v1alpha1.StepStatus, wait time.Duration) {
	s.Phase, s.NextAttemptAt = v1alpha1.StepBackingOff, microPointer(d.now.Add(wait))
}

func (d *decider) stepFailed(i int, e v1alpha1.StepError, reason string) {
	s := &d.st.Steps[i]
	d.setError(s, &e)
	s.Phase, s.CompletedAt, s.NextAttemptAt = v1alpha1.StepFailed, microPointer(d.now), nil
	if d.failure == nil {
		d.failure = &failure{step: i, reason: reason} // the event of the run's end tells it
		return
	}
	d.event(EventWarning, "StepFailed", failureText(s))
}

// setError keeps messages within a budget for the whole run, so that status stays below its bound with 200 failing steps.
func (d *decider) setError(s *v1alpha1.StepStatus, e *v1alpha1.StepError) {
	if s.Error != nil {
		d.errorBytes -= storedBytes(s.Error.Message)
	}
	s.Error = e
	if e == nil {
		return
	}
	e.Code, e.Message = printable(e.Code), printable(e.Message)
	e.Code = cutStored(cut(e.Code, maxCodeChars), maxCodeChars+len(`""`))
	if e.Code == "" {
		e.Code = CodeUnspecified
	}
	e.Message = cutStored(cut(e.Message, maxErrorChars), max(0, maxErrorsBytes-d.errorBytes))
	d.errorBytes += storedBytes(e.Message)
}

func workerError(e *protocol.ResultError) v1alpha1.StepError {
	if e == nil {
		return v1alpha1.StepError{Code: CodeUnspecified}
	}
	return v1alpha1.StepError{Code: e.Code, Message: e.Message}
}

func inc(n int32) int32 {
	if n == math.MaxInt32 {
		return n
	}
	return n + 1
}
