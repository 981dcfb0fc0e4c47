// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: no cap, a cap of the default though the policy has one, or a Retry that counts as a
// failure makes this fail.
func TestAWorkersWishIsGrantedUpToThePolicysLimit(t *testing.T) {
	for name, c := range map[string]struct {
		asked int64
		limit time.Duration
		want  time.Duration
		said  string
	}{
		"less than the limit is granted":           {1500, 10 * time.Second, 1500 * time.Millisecond, "asked for a retry in 1500 ms; it comes at"},
		"the limit itself is granted":              {10_000, 10 * time.Second, 10 * time.Second, "asked for a retry in 10000 ms; it comes at"},
		"more than the limit is cut":               {10_001, 10 * time.Second, 10 * time.Second, "in 10001 ms, more than the policy's 10s"},
		"140 hours are cut":                        {504_000_000, time.Hour, time.Hour, "more than the policy's 1h0m0s"},
		"without a limit it is that of the schema": {60_000, 0, 30 * time.Second, "more than the policy's 30s"},
		"nothing is a little":                      {0, 10 * time.Second, bounds.MinRetryAfter, "asked for a retry; it comes at"},
	} {
		t.Run(name, func(t *testing.T) {
			run := dispatched(t)
			r := result("a", 1, protocol.StatusRetry)
			r.Result.RetryAfterMillis = c.asked
			out := Decide(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{r}, MaxRetryAfter: c.limit})
			step := out.Status.Steps[0]
			if step.Phase != v1alpha1.StepBackingOff || step.Failures != 0 || !step.NextAttemptAt.Equal(bounds.Micro(epoch.Add(c.want))) {
				t.Errorf("step %+v, want the next attempt after %s", step, c.want)
			}
			if diff := cmp.Diff([]time.Duration{c.want}, out.Granted); diff != "" {
				t.Errorf("granted (-want +got):\n%s", diff)
			}
			if len(out.Events) != 1 || !strings.Contains(out.Events[0].Message, c.said) {
				t.Errorf("events %+v, want %q", out.Events, c.said)
			}
		})
	}
}

// A worker may say why it asks for a retry, of a job or of an item; and what it says in no known
// way is a failure.
//
// mutation: a Retry whose error is dropped, or a status that is taken for granted, makes
// a case fail.
func TestWhatAWorkerSaysBesideGoodAndBad(t *testing.T) {
	retry := result("a", 1, protocol.StatusRetry)
	retry.Result.Error = &protocol.ResultError{Code: "Busy", Message: "at noon"}
	odd := result("a", 1, "Half-done")
	for name, c := range map[string]struct {
		result   Result
		want     string
		failures int32
		rejected string
	}{
		"a failure without a reason": {result("a", 1, protocol.StatusFailed), "Unspecified", 1, ""},
		"a retry with a reason":      {retry, "Busy: at noon", 0, ""},
		"a status that nobody knows": {odd, `ResultRejected: status "Half-done"`, 1, `status "Half-done"`},
	} {
		t.Run(name, func(t *testing.T) {
			run := dispatched(t)
			out := decideAt(run, epoch, held(1), c.result)
			if s := out.Status.Steps[0]; s.Phase != v1alpha1.StepBackingOff || s.Failures != c.failures || report.ErrorText(s.Error) != c.want {
				t.Errorf("step %s, %d failures, %s", s.Phase, s.Failures, report.ErrorText(s.Error))
			}
			run = newRun(newStep("a", forEach("${[1]}", 1, "")))
			advance(t, run, epoch)
			items := decideAt(run, epoch, held(1), ofItem(0, c.result))
			s := items.Status.Steps[0]
			if g := s.ForEach.Groups[0]; g.Phase != v1alpha1.StepBackingOff || g.Failures != c.failures || !strings.Contains(report.ErrorText(s.Error), ": item 0") {
				t.Errorf("item %s, %d failures, %s", g.Phase, g.Failures, report.ErrorText(s.Error))
			}
			if out.Rejected[0] != c.rejected || items.Rejected[0] != c.rejected {
				t.Errorf("put aside %v, %v", out.Rejected, items.Rejected)
			}
		})
	}
}

// mutation: another default here or in the policy makes this fail.
func TestTheDefaultLimitIsThePolicys(t *testing.T) {
	if got := policy.Defaults().Delivery.MaxDelay; got != bounds.DefaultMaxRetryAfter {
		t.Errorf("the policy's default is %s, the core's %s", got, bounds.DefaultMaxRetryAfter)
	}
}

// mutation: telling without the lock, an event each time, or no condition at the end of the run
// makes a case fail.
func TestDeadLettersAreTold(t *testing.T) {
	dead := []DeadLetter{{ID: job("a", 2), Failures: 3, Cause: "write status: denied\nby a webhook"}}
	const text = "Result of step a, attempt 2: put aside after 3 failed deliveries, the last one with: write status: denied by a webhook"
	for name, c := range map[string]struct {
		lock   Lock
		change func(run *v1alpha1.WorkflowRun)
		told   bool
		event  bool
	}{
		"under the lock":                            {held(1), nil, true, true},
		"not while somebody else has the lock":      {busy(), nil, false, false},
		"not while Redis is down":                   {unavailable(), nil, false, false},
		"by a forced end":                           {busy(), func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownCancel }, true, true},
		"not again by an event when it stands":      {held(1), func(run *v1alpha1.WorkflowRun) { setDeadLettered(run, v1alpha1.ReasonDeliveriesExhausted, text) }, true, false},
		"by an event when something else was there": {held(1), func(run *v1alpha1.WorkflowRun) { setDeadLettered(run, v1alpha1.ReasonResultRejected, text) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			run := dispatched(t)
			if c.change != nil {
				c.change(run)
			}
			out := Decide(Input{Run: run, Now: epoch, Lock: c.lock, DeadLetters: dead})
			if out.Told != c.told {
				t.Errorf("told: %t", out.Told)
			}
			got := status.Condition(&out.Status, v1alpha1.ConditionDeadLettered)
			if c.told && (got.Status != metav1.ConditionTrue || got.Reason != v1alpha1.ReasonDeliveriesExhausted || got.Message != text) {
				t.Errorf("condition %+v", got)
			}
			events := 0
			for _, e := range out.Events {
				if e.Reason == v1alpha1.ReasonDeliveriesExhausted && e.Type == EventWarning && e.Message == text {
					events++
				}
			}
			if events != map[bool]int{true: 1}[c.event] {
				t.Errorf("%d events: %+v", events, out.Events)
			}
		})
	}
}

func setDeadLettered(run *v1alpha1.WorkflowRun, reason, message string) {
	c := status.Condition(run.Status, v1alpha1.ConditionDeadLettered)
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, message
}

// mutation: a message of all letters makes this fail.
func TestManyDeadLettersFitIntoOneMessage(t *testing.T) {
	run := dispatched(t)
	var dead []DeadLetter
	for n := range 200 {
		dead = append(dead, DeadLetter{ID: job(fmt.Sprint("s", n), 1), Failures: 100, Cause: strings.Repeat("x", 10_000)})
	}
	out := Decide(Input{Run: run, Now: epoch, Lock: held(1), DeadLetters: dead})
	got := status.Condition(&out.Status, v1alpha1.ConditionDeadLettered).Message
	if len(got) > 2*bounds.MaxMessageChars || !strings.HasPrefix(got, "Result of step s0,") || !strings.Contains(got, "more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// dispatched is a run whose step a is with a worker.
func dispatched(t *testing.T) *v1alpha1.WorkflowRun {
	t.Helper()
	run := newRun(newStep("a"))
	out := decideAt(run, epoch, held(1))
	run.Status = persisted(t, &out.Status)
	return run
}
