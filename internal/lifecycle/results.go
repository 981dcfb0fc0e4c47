// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/retry"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// applyResults applies what workers said. All results of the batch count before one of them
// ends the run, and so do signals and ends of child runs before a failure does.
func applyResults(d *draft) {
	d.out.Verdicts = make([]Verdict, len(d.in.Results))
	for k := range d.in.Results {
		d.out.Verdicts[k] = applyResult(d, k)
		d.store.rest()
	}
	for _, it := range d.items {
		if it != nil {
			succeedItems(d, it)
			settleItems(d, it)
		}
	}
	catchUp(d)
	d.answers.note(d.in.Results, d.out.Verdicts)
	endIfNoneFailed(d)
}

func applyResult(d *draft, k int) Verdict {
	r := &d.in.Results[k]
	i, verdict := facts.Judge(d.run, d.st.Steps, d.plan.Index, r.ID)
	switch {
	case verdict != Ahead && status.IsForEach(&d.st.Steps[i]):
		return applyItem(d, k, i)
	case verdict != Applied:
		return d.out.unapplied(k, r, d.st.Steps, i, verdict)
	case r.Rejected != "":
		rejectAttempt(d, k, i, r.Rejected)
		return Applied
	}
	switch r.Result.Status {
	case protocol.StatusStarted:
		return noteStarted(d, i, r.PublishedAt)
	case protocol.StatusSucceeded:
		return succeedStep(d, k, i)
	case protocol.StatusFailed:
		failAttempt(d, i, workerError(r.Result.Error), r.Result.Final)
	case protocol.StatusRetry:
		askLater(d, i, r.Result)
	default:
		rejectAttempt(d, k, i, fmt.Sprintf("status %q", bounds.Cut(string(r.Result.Status), bounds.MaxCodeChars)))
	}
	return Applied
}

// noteStarted notes that a worker began. The server's clock said when, which may differ from ours:
// what it says is believed only between dispatch and now.
func noteStarted(d *draft, i int, published time.Time) Verdict {
	s := &d.st.Steps[i]
	if s.Phase == v1alpha1.StepRunning {
		return Duplicate
	}
	s.Phase, s.StartedAt = v1alpha1.StepRunning, status.StartedAt(published, s.DispatchedAt, d.now)
	return Applied
}

func succeedStep(d *draft, k, i int) Verdict {
	s := &d.st.Steps[i]
	kept, problem := d.store.keepOne(&d.in.Results[k])
	switch {
	case kept.lacking:
		return Waiting
	case problem != nil && problem.Code == facts.CodeResultRejected:
		rejectAttempt(d, k, i, problem.Message)
		return Applied
	case problem != nil:
		s.Failures = retry.Inc(s.Failures)
		stepFailed(d, i, *problem, v1alpha1.ReasonOutputTooLarge)
		return Applied
	}
	d.store.used += len(bounds.Raw(kept.output))
	d.texts.setError(s, nil)
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, kept.output, kept.ref, bounds.Micro(d.now)
	d.event(report.StepSucceeded(s))
	return Applied
}

// askLater honours a worker's wish to be asked later. It is no failure; only the run's
// deadline bounds it.
func askLater(d *draft, i int, r protocol.Result) {
	s := &d.st.Steps[i]
	wait := grantWait(d, r)
	wish := report.RetryWish(r, wait)
	e := postponedBy(r, wish)
	d.texts.setError(s, &e)
	backOff(d, s, wait)
	d.event(report.StepPostponed(s, wish))
}

// postponedBy is the error of an attempt whose worker asked to be asked later: its own, with the
// wish, or the wish alone.
func postponedBy(r protocol.Result, wish string) v1alpha1.StepError {
	if r.Error == nil {
		return v1alpha1.StepError{Code: facts.CodeRetryRequested, Message: wish}
	}
	e := workerError(r.Error)
	if r.RetryAfterMillis > 0 {
		e.Message = strings.TrimPrefix(e.Message+"; "+wish, "; ")
	}
	return e
}
