package lifecycle

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// results applies what workers said. All results of the batch count before one of them ends the run.
func (d *decider) results() {
	d.out.Verdicts = make([]Verdict, len(d.in.Results))
	for k := range d.in.Results {
		d.out.Verdicts[k] = d.apply(k)
	}
	for _, it := range d.items {
		if it != nil {
			d.succeedItems(it)
			d.settleItems(it)
		}
	}
	d.noteUnsettled()
	d.endIfDone()
}

// judge compares an attempt with the persisted one of its step. Applied means: this attempt is in flight.
func judge(run *v1alpha1.WorkflowRun, steps []v1alpha1.StepStatus, index map[string]int, id protocol.JobID) (int, Verdict) {
	i, known := index[id.Step]
	if !known || i >= len(steps) || id.RunUID != string(run.UID) || (id.Item != protocol.NoItem) != status.IsForEach(&steps[i]) {
		return 0, Ahead
	}
	switch s := &steps[i]; {
	case status.IsForEach(s):
		return i, Duplicate // see judgeItem
	case id.Attempt > s.Attempt:
		return i, Ahead
	case id.Attempt < s.Attempt:
		return i, Stale
	case status.WithWorker(s):
		return i, Applied
	default:
		return i, Duplicate
	}
}

func (d *decider) apply(k int) Verdict {
	r := &d.in.Results[k]
	i, verdict := judge(d.run, d.st.Steps, d.plan.Index, r.ID)
	switch {
	case verdict != Ahead && status.IsForEach(&d.st.Steps[i]):
		return d.applyItem(k, i)
	case verdict != Applied:
		return d.out.unapplied(k, r, d.st.Steps, i, verdict)
	case r.Rejected != "":
		d.reject(k, i, r.Rejected)
		return Applied
	}
	switch r.Result.Status {
	case protocol.StatusStarted:
		return d.started(i, r.PublishedAt)
	case protocol.StatusSucceeded:
		return d.succeed(k, i)
	case protocol.StatusFailed:
		d.fail(i, workerError(r.Result.Error), r.Result.Final)
	case protocol.StatusRetry:
		d.postpone(i, r.Result)
	default:
		d.reject(k, i, fmt.Sprintf("status %q", bounds.Cut(string(r.Result.Status), bounds.MaxCodeChars)))
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
	s.Phase, s.StartedAt = v1alpha1.StepRunning, d.startedAt(published, s.DispatchedAt)
	return Applied
}

func (d *decider) startedAt(published time.Time, dispatched *metav1.MicroTime) *metav1.MicroTime {
	at := published
	if dispatched != nil && at.Before(dispatched.Time) {
		at = dispatched.Time
	}
	if at.After(d.now) {
		at = d.now
	}
	return bounds.Micro(at)
}

func (d *decider) succeed(k, i int) Verdict {
	s := &d.st.Steps[i]
	kept, problem := d.keep(&d.in.Results[k])
	switch {
	case kept.lacking:
		return Waiting
	case problem != nil && problem.Code == CodeResultRejected:
		d.reject(k, i, problem.Message)
		return Applied
	case problem != nil:
		s.Failures = inc(s.Failures)
		d.stepFailed(i, *problem, v1alpha1.ReasonOutputTooLarge)
		return Applied
	}
	d.outputBytes += len(bounds.Raw(kept.output))
	d.setError(s, nil)
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, kept.output, kept.ref, bounds.Micro(d.now)
	d.event(EventNormal, "StepSucceeded", fmt.Sprintf("Step %s succeeded (attempt %d)", s.Name, s.Attempt))
	return Applied
}

// reject counts an unusable result as a failed attempt; the bus keeps its bytes as a dead letter.
func (d *decider) reject(k, i int, why string) {
	s := &d.st.Steps[i]
	d.out.rejectResult(k, why)
	message := fmt.Sprintf("result of step %s, attempt %d: %s", s.Name, s.Attempt, why)
	d.deadLettered(message)
	d.fail(i, v1alpha1.StepError{Code: CodeResultRejected, Message: why}, false)
}

func (out *Decision) rejectResult(k int, why string) {
	if out.Rejected == nil {
		out.Rejected = map[int]string{}
	}
	out.Rejected[k] = why
}

// unapplied is the verdict on a result that has no effect; i is its step, if that is known.
func (out *Decision) unapplied(k int, r *Result, steps []v1alpha1.StepStatus, i int, v Verdict) Verdict {
	if v != Ahead {
		out.rejectAgain(k, r, &steps[i], v)
	}
	return v
}

// rejectAgain has a result put aside that was rejected before, by a process that died before it was settled. By now the step may be at
// another attempt, and of an item nothing is known any more: so the result itself has to say that it was. Only what was wrong with an object
// in the store is not seen in its reference: the step's error names that object, unless another took its place. Whatever else was said of the attempt
// is good, and a duplicate.
func (out *Decision) rejectAgain(k int, r *Result, s *v1alpha1.StepStatus, v Verdict) {
	switch why := unusable(r); {
	case why != "":
		out.rejectResult(k, why)
	case v == Duplicate && !status.IsForEach(s) && r.Result.OutputRef != nil && s.Error != nil && s.Error.Code == CodeResultRejected &&
		strings.HasSuffix(s.Error.Message, objectOf(*r.Result.OutputRef)):
		out.rejectResult(k, s.Error.Message)
	}
}

// unusable says why a result is rejected whatever the state of its attempt; "": it may be usable. Of an output in the object store only
// the reference is looked at.
func unusable(r *Result) string {
	switch {
	case r.Rejected != "" || r.Result.Status != protocol.StatusSucceeded:
		return r.Rejected
	case r.Result.OutputRef != nil:
		if problem := referenceProblem(r.ID, *r.Result.OutputRef); problem != nil && problem.Code == CodeResultRejected {
			return problem.Message
		}
	case len(r.Result.Output) > 0:
		if _, err := bounds.Canonical(r.Result.Output); err != nil {
			return "output: " + err.Error()
		}
	}
	return ""
}

// fail ends an attempt as failed: the step backs off, or fails for good.
func (d *decider) fail(i int, e v1alpha1.StepError, final bool) {
	s, step := &d.st.Steps[i], &d.plan.Steps[i]
	e.Code = normalCode(e.Code)
	s.Failures = inc(s.Failures)
	if final || isLast(step, e.Code, s.Failures) {
		d.stepFailed(i, e, v1alpha1.ReasonStepFailed)
		return
	}
	d.setError(s, &e)
	d.backOff(s, backoff(step.Retry.Backoff, s.Failures, status.JobID(d.run, s.Name, s.Attempt)))
	d.event(EventWarning, "StepBackingOff", fmt.Sprintf("Step %s: attempt %d failed, next one at %s: %s",
		s.Name, s.Attempt, timeText(s.NextAttemptAt), errorText(s.Error)))
}

// postpone honours a worker's wish to be asked later. It is no failure; only the run's deadline bounds it.
func (d *decider) postpone(i int, r protocol.Result) {
	s := &d.st.Steps[i]
	wait := d.grant(r)
	wish := retryWish(r, wait)
	e := v1alpha1.StepError{Code: CodeRetryRequested, Message: wish}
	if r.Error != nil {
		e = workerError(r.Error)
	}
	if r.Error != nil && r.RetryAfterMillis > 0 {
		e.Message = strings.TrimPrefix(e.Message+"; "+wish, "; ")
	}
	d.setError(s, &e)
	d.backOff(s, wait)
	d.event(EventNormal, "StepBackingOff", fmt.Sprintf("Step %s: the worker of attempt %d %s; it comes at %s", s.Name, s.Attempt, wish, timeText(s.NextAttemptAt)))
}

// retryWish is what a worker asked for with Retry, and what bounds it.
func retryWish(r protocol.Result, wait time.Duration) string {
	if r.RetryAfterMillis <= 0 {
		return "asked for a retry"
	}
	text := fmt.Sprintf("asked for a retry in %d ms", r.RetryAfterMillis)
	if r.RetryAfterMillis > wait.Milliseconds() && wait > bounds.MinRetryAfter {
		text += fmt.Sprintf(", more than the policy's %s", wait)
	}
	return text
}

// grant is the wait that a worker gets which asked for one.
func (d *decider) grant(r protocol.Result) time.Duration {
	limit := bounds.PositiveOr(int64(d.in.MaxRetryAfter), int64(bounds.DefaultMaxRetryAfter))
	wait := retryAfter(r.RetryAfterMillis, time.Duration(limit))
	d.out.Granted = append(d.out.Granted, wait)
	return wait
}

func (d *decider) backOff(s *v1alpha1.StepStatus, wait time.Duration) {
	s.Phase, s.NextAttemptAt = v1alpha1.StepBackingOff, bounds.Micro(d.now.Add(wait))
}

func (d *decider) stepFailed(i int, e v1alpha1.StepError, reason string) {
	s := &d.st.Steps[i]
	d.setError(s, &e)
	s.Phase, s.CompletedAt, s.NextAttemptAt = v1alpha1.StepFailed, bounds.Micro(d.now), nil
	if d.failure == nil && d.fatal(i) {
		d.failure = &failure{step: i, reason: reason} // the event of the run's end tells it
		return
	}
	d.event(EventWarning, "StepFailed", failureText(s))
}

// fatal says whether the failure of a step ends the steps of its run. Finally steps are all tried, whatever becomes of one.
func (d *decider) fatal(i int) bool {
	return !d.plan.IsFinally(i) && d.plan.Steps[i].OnFailure != v1alpha1.FailureContinue
}

// isLast says whether a job is not tried again after this many failures, the last one with a code.
func isLast(step *v1alpha1.Step, code string, failures int32) bool {
	retryable := len(step.Retry.OnCodes) == 0 || slices.Contains(step.Retry.OnCodes, code)
	return !retryable || failures >= bounds.PositiveOr(step.Retry.MaxFailures, bounds.DefaultMaxFailures)
}

// setError keeps messages within a budget for the whole run, so that status stays below its bound with 200 failing steps.
func (d *decider) setError(s *v1alpha1.StepStatus, e *v1alpha1.StepError) {
	if s.Error != nil {
		d.errorBytes -= bounds.StoredBytes(s.Error.Message)
	}
	s.Error = e
	if e == nil {
		return
	}
	e.Code, e.Message = normalCode(e.Code), bounds.Printable(e.Message)
	e.Message = bounds.CutStored(bounds.Cut(e.Message, bounds.MaxErrorChars), max(0, bounds.MaxErrorsBytes-d.errorBytes))
	d.errorBytes += bounds.StoredBytes(e.Message)
}

// normalCode is an error code as status shows it.
func normalCode(code string) string {
	code = bounds.CutStored(bounds.Cut(bounds.Printable(code), bounds.MaxCodeChars), bounds.MaxCodeChars+len(`""`))
	if code == "" {
		return CodeUnspecified
	}
	return code
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
