// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// outage decides about runs while NATS does not answer.
type outage struct {
	t   *testing.T
	run *v1alpha1.WorkflowRun
	at  time.Time
}

// decide persists what is decided, and says whether there was something to persist.
func (o *outage) decide(down time.Time, results ...Result) bool {
	in := letIn(Input{Run: o.run, Now: o.at, Lock: held(1), NATSDown: down, Results: results})
	out := Decide(in)
	if out.Changed {
		o.run.Status = persisted(o.t, &out.Status)
	}
	return out.Changed
}

func (o *outage) said() (reason, message string) {
	c := status.Condition(o.run.Status, v1alpha1.ConditionSucceeded)
	return c.Reason, c.Message
}

// mutation: lacksNATS that is false makes this fail; so does a natsText that does not keep the
// moment, or an outageText that does not leave out what is not known.
func TestAnOutageOfNATSIsToldOnce(t *testing.T) {
	o := &outage{t, newRun(newStep("a"), newStep("b"), newStep("c", delay(3600))), epoch}
	o.decide(time.Time{})
	o.decide(time.Time{}, result("b", 1, "Started"))
	o.at = epoch.Add(10 * time.Second)
	if !o.decide(epoch.Add(7 * time.Second)) {
		t.Error("it is not told")
	}
	reason, message := o.said()
	want := "NATS does not answer since 2026-11-20T10:00:07Z: no job goes out and no result comes in; 0 of 3 steps finished; " +
		"a was dispatched at 2026-11-20T10:00:00Z (attempt 1); b was dispatched at 2026-11-20T10:00:00Z (attempt 1); c is delayed until 2026-11-20T11:00:00Z"
	if reason != v1alpha1.ReasonWaitingForNATS || message != want {
		t.Errorf("%s: %s", reason, message)
	}
	if o.decide(epoch.Add(9 * time.Second)) {
		t.Error("it is told again, though another process only noticed it later")
	}
	if !o.decide(time.Time{}) {
		t.Error("its end is not told")
	}
	if reason, message := o.said(); reason != v1alpha1.ReasonRunning || strings.Contains(message, "NATS") {
		t.Errorf("afterwards %s: %s", reason, message)
	}
}

// mutation: steps that wait for no job, or answers that are dead letters, counted by lacksNATS
// make this fail.
func TestARunThatNeedsNoNATSSaysNothingOfIt(t *testing.T) {
	for name, run := range map[string]*v1alpha1.WorkflowRun{
		"a delay":     newRun(newStep("a", delay(3600))),
		"an approval": newRun(newStep("a", approval(func(*v1alpha1.Approval) {}))),
		"a child run": newRun(newStep("a", childRun(`{"steps":[{"name":"x","job":{"topic":"t"}}]}`, ""))),
	} {
		t.Run(name, func(t *testing.T) {
			o := &outage{t, run, epoch}
			o.decide(epoch)
			if reason, message := o.said(); reason == v1alpha1.ReasonWaitingForNATS || strings.Contains(message, "NATS") {
				t.Errorf("%s: %s", reason, message)
			}
		})
	}
	t.Run("a dead letter", func(t *testing.T) {
		o := &outage{t, newRun(newStep("a")), epoch}
		o.decide(time.Time{})
		o.run.Status.Steps[0].DeadLetter = v1alpha1.DeadLetterExhausted
		o.decide(epoch)
		if reason, message := o.said(); reason == v1alpha1.ReasonWaitingForNATS {
			t.Errorf("%s: %s", reason, message)
		}
	})
}

func TestItemsWaitForNATS(t *testing.T) {
	o := &outage{t, fanOut(3, 2, ""), epoch}
	o.decide(time.Time{})
	o.decide(epoch)
	if reason, message := o.said(); reason != v1alpha1.ReasonWaitingForNATS || !strings.Contains(message, "0 of 3 items are over") {
		t.Errorf("%s: %s", reason, message)
	}
}

// Nothing has gone out when a decision is persisted: that an attempt goes to its topic is told once
// NATS has taken it.
// mutation: an event in commit makes this fail.
func TestADispatchIsNoEventOfItsDecision(t *testing.T) {
	out := Decide(letIn(Input{Run: newRun(newStep("a"), newStep("b", forEach("${[1]}", 1, ""))), Now: epoch, Lock: held(1)}))
	for _, e := range out.Events {
		if e.Reason == "StepDispatched" {
			t.Errorf("event %+v", e)
		}
	}
	if len(out.Dispatch) != 2 {
		t.Fatalf("dispatched %v", names(out.Dispatch))
	}
	if e, ok := report.Dispatched(out.Dispatch[0]); !ok || e.Reason != "StepDispatched" || e.Message != "Step a: attempt 1 goes to topic t.a" {
		t.Errorf("%+v, %t", e, ok)
	}
	if e, ok := report.Dispatched(out.Dispatch[1]); ok {
		t.Errorf("of an item: %+v", e)
	}
}
