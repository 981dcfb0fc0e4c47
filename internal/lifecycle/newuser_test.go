// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: an error that is set only if the worker told one makes the first and the last fail; a
// wish without its bound the second.
func TestARetrySaysWhatTheWorkerAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		millis int64
		err    *protocol.ResultError
		want   string
	}{
		"no error":         {500, nil, "attempt 1: RetryRequested: asked for a retry in 500 ms)"},
		"more than may be": {300000, nil, "attempt 1: RetryRequested: asked for a retry in 300000 ms, more than the policy's 30s)"},
		"an error":         {500, &protocol.ResultError{Code: "Busy", Message: "no seat"}, "attempt 1: Busy: no seat; asked for a retry in 500 ms)"},
		"only a code":      {500, &protocol.ResultError{Code: "Busy"}, "attempt 1: Busy: asked for a retry in 500 ms)"},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			advance(t, run, epoch)
			r := retryIn("a", 1, c.millis)
			r.Result.Error = c.err
			advance(t, run, epoch, r)
			if got := status.Condition(run.Status, v1alpha1.ConditionSucceeded).Message; !strings.HasSuffix(got, c.want) {
				t.Errorf("%q does not end with %q", got, c.want)
			}
			advance(t, run, epoch.Add(time.Hour), failed("a", 2, "Broken", ""))
		})
	}
	run := newRun(newStep("a"))
	advance(t, run, epoch)
	advance(t, run, epoch, failed("a", 1, "Broken", ""))
	advance(t, run, epoch.Add(time.Hour))
	advance(t, run, epoch.Add(time.Hour), retryIn("a", 2, 500))
	if e := run.Status.Steps[0].Error; e.Code != facts.CodeRetryRequested {
		t.Errorf("the error of an earlier attempt is told of a later one: %+v", e)
	}
}

// mutation: an event or a condition with a message as it is makes this fail.
func TestNothingThatPeopleReadControlsATerminal(t *testing.T) {
	const nasty = "\x1b[31mred\x1b[0m\u202eturned\u0085\n"
	run := newRun(newStep("a", approval(func(a *v1alpha1.Approval) { a.Message = nasty })), newStep("b", maxFailures(1)))
	out := advance(t, run, epoch)
	events := out.Events
	out = advance(t, run, epoch, failed("b", 1, nasty, nasty))
	for _, e := range append(events, out.Events...) {
		if strings.ContainsAny(e.Message, "\x1b\u202e\u0085\n") {
			t.Errorf("event %q", e.Message)
		}
	}
	for _, c := range out.Status.Conditions {
		if strings.ContainsAny(c.Message, "\x1b\u202e\u0085\n") {
			t.Errorf("condition %s: %q", c.Type, c.Message)
		}
	}
}

// status.progress counts finally steps, so the message names them. mutation: a successText that
// leaves them out makes this fail.
func TestTheMessageOfSuccessAgreesWithProgress(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", maxFailures(1), continues))
	run.Spec.Finally = []v1alpha1.Step{newStep("c"), newStep("d")}
	advance(t, run, epoch)
	advance(t, run, epoch, succeeded("a", 1, `1`), failed("b", 1, "Broken", ""))
	out := advance(t, run, epoch, succeeded("c", 1, `1`), succeeded("d", 1, `1`))
	const want = "1 of 2 steps succeeded, 1 failed with onFailure Continue (beside them 2 of spec.finally)"
	if got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message; out.Status.Progress != "4/4" || got != want {
		t.Errorf("%s: %s", out.Status.Progress, got)
	}
}

// mutation: an inputs field that is not looked at, or a bound that is one off, makes this fail.
func TestInputsAreNotNestedDeep(t *testing.T) {
	nested := func(n int) string {
		return strings.Repeat(`{"a":`, n-1) + "[]" + strings.Repeat("}", n-1)
	}
	for name, c := range map[string]struct {
		deep   int
		reason string
	}{"as deep as may be": {bounds.MaxInputDepth, v1alpha1.ReasonRunning}, "one more": {bounds.MaxInputDepth + 1, v1alpha1.ReasonInvalidSpec}, "far too deep": {9000, v1alpha1.ReasonInvalidSpec}} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Spec.Inputs = raw(nested(c.deep))
			out := advance(t, run, epoch)
			got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if got.Reason != c.reason || c.reason == v1alpha1.ReasonInvalidSpec && !strings.Contains(got.Message, "spec.inputs: nested more than 100 deep") {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
		})
	}
}

// mutation: a renderer that does not look at keys where it checks makes this fail.
func TestAnExpressionInAKeyIsRefused(t *testing.T) {
	out := advance(t, newRun(newStep("a", input(`{"x":{"${inputs.name}":1}}`))), epoch)
	got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
	if got.Reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(got.Message, "${inputs.name}") || !strings.Contains(got.Message, "in a value only") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}

// mutation: a text that says "waits for a worker" of a job that a stuck worker may have
// makes this fail.
func TestAJobThatAStuckWorkerMayHaveDoesNotWaitForOne(t *testing.T) {
	run := newRun(newStep("a"))
	advance(t, run, epoch)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Workers: map[string]Workers{"t.a": {State: WorkersStuck, Since: epoch}}})
	out := Decide(in)
	got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
	if got.Reason != v1alpha1.ReasonWaitingForWorkers || strings.Contains(got.Message, "waits for a worker") ||
		!strings.Contains(got.Message, "a was dispatched at 2026-11-20T10:00:00Z (attempt 1): the workers of topic t.a get nothing done since") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}
