// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/retry"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func deadLettered(d *draft, message string) {
	d.rejected = message
	d.event(report.ResultRejected(message))
}

// rejectAttempt counts an unusable result as a failed attempt; the bus keeps its bytes as
// a dead letter.
func rejectAttempt(d *draft, k, i int, why string) {
	s := &d.st.Steps[i]
	why = d.out.rejectResult(k, why)
	deadLettered(d, report.RejectedResult(s, why))
	failAttempt(d, i, v1alpha1.StepError{Code: facts.CodeResultRejected, Message: why}, false)
}

// failAttempt ends an attempt as failed: the step backs off, or fails for good.
func failAttempt(d *draft, i int, e v1alpha1.StepError, final bool) {
	s, step := &d.st.Steps[i], &d.plan.Steps[i]
	e.Code = retry.Code(e.Code)
	s.Failures = retry.Inc(s.Failures)
	if final || retry.Last(step, e.Code, s.Failures) {
		stepFailed(d, i, e, v1alpha1.ReasonStepFailed)
		return
	}
	d.texts.setError(s, &e)
	backOff(d, s, retry.Backoff(step.Retry.Backoff, s.Failures, status.JobID(d.run, s.Name, s.Attempt)))
	d.event(report.StepBacksOff(s))
}

// grantWait is the wait that a worker gets which asked for one.
func grantWait(d *draft, r protocol.Result) time.Duration {
	wait := retry.After(r.RetryAfterMillis, maxRetryAfter(d))
	d.out.Granted = append(d.out.Granted, wait)
	return wait
}

func maxRetryAfter(d *draft) time.Duration {
	return time.Duration(bounds.PositiveOr(int64(d.in.MaxRetryAfter), int64(bounds.DefaultMaxRetryAfter)))
}

func backOff(d *draft, s *v1alpha1.StepStatus, wait time.Duration) {
	s.Phase, s.NextAttemptAt = v1alpha1.StepBackingOff, bounds.Micro(d.now.Add(wait))
}

func stepFailed(d *draft, i int, e v1alpha1.StepError, reason string) {
	s := &d.st.Steps[i]
	d.texts.setError(s, &e)
	s.Phase, s.CompletedAt, s.NextAttemptAt = v1alpha1.StepFailed, bounds.Micro(d.now), nil
	if d.failure == nil && fatal(d, i) {
		d.failure = &failure{step: i, reason: reason} // the event of the run's end tells it
		return
	}
	d.event(report.StepFailed(s))
}

// fatal says whether the failure of a step ends the steps of its run. Finally steps are all tried,
// whatever becomes of one.
func fatal(d *draft, i int) bool {
	return !d.plan.IsFinally(i) && d.plan.Steps[i].OnFailure != v1alpha1.FailureContinue
}

// workerError is what a worker said, without what nobody keeps of a long text.
func workerError(e *protocol.ResultError) v1alpha1.StepError {
	if e == nil {
		return v1alpha1.StepError{Code: facts.CodeUnspecified}
	}
	return v1alpha1.StepError{Code: retry.Code(e.Code), Message: bounds.Cut(e.Message, bounds.MaxErrorChars)}
}
