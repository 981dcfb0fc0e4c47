// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// A step that backs off keeps its locks. Without its place it could wait for one that waits for
// them: that is no ring which a resync sees.
//
// mutations: a HasPlace without locks, startSome that lets only what finds a place begin, and
// wakeAt that adds no attempts without a place, make this fail.
func TestAStepThatBacksOffWithItsLocksKeepsItsPlace(t *testing.T) {
	items := newStep("b", forEach("${[1]}", 1, v1alpha1.FailStep))
	items.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m")}
	for name, other := range map[string]v1alpha1.Step{"items want them": items, "a child run wants them": newStep("b", childRun(oneJob, ""))} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a", withStepLocks(mutexOf("m"))), other)
			run.Spec.MaxParallelSteps = 1
			decideLocked(t, run, epoch, map[string]LocksAnswer{"a": heldWith(7)})
			out := decideLocked(t, run, epoch, nil, failed("a", 1, "Broken", "x"))
			a, b := &run.Status.Steps[0], &run.Status.Steps[1]
			if a.Phase != v1alpha1.StepBackingOff || len(a.Locks) != 1 || b.Phase != v1alpha1.StepPending || len(out.Needs.Locks) > 0 {
				t.Fatalf("a is %s with %v, b is %s, asks %v", a.Phase, a.Locks, b.Phase, out.Needs.Locks)
			}
			if !out.Wake.Equal(a.NextAttemptAt.Time) {
				t.Errorf("wakes at %s, want %s", out.Wake, a.NextAttemptAt)
			}
			out = decideLocked(t, run, a.NextAttemptAt.Time, nil)
			if len(out.Dispatch) != 1 || out.Dispatch[0].ID != job("a", 2) {
				t.Fatalf("dispatches %v", out.Dispatch)
			}
			decideLocked(t, run, epoch.Add(time.Hour), nil, succeeded("a", 2, `1`))
			if b := &run.Status.Steps[1]; b.Phase != v1alpha1.StepRunning {
				t.Errorf("b is %s after a is over", b.Phase)
			}
		})
	}
}

// Who has got its locks, and cannot begin yet, has its place, too.
//
// mutation: a HasPlace that is for attempts only makes this fail.
func TestAStepThatHasItsLocksAndCannotBeginKeepsItsPlace(t *testing.T) {
	o := objects{}
	run := withOutputs(t, o, 5<<20, newStep("gate", approval(func(*v1alpha1.Approval) {})), newStep("early", after("gate")),
		newStep("locked", after("a"), input(`{"x":"${size(steps.a.output)}"}`), withStepLocks(mutexOf("m"))))
	run.Spec.MaxParallelSteps = 1
	decideAll(t, o, run, epoch, LocksAnswer{State: LocksWaiting, Lock: "mutex:team-a/m"})
	out := decideLocked(t, run, epoch, map[string]LocksAnswer{"locked": heldWith(7)})
	if s := &run.Status.Steps[4]; s.Phase != v1alpha1.StepPending || len(s.Locks) != 1 || len(out.Needs.Load) != 1 || len(out.Dispatch) > 0 {
		t.Fatalf("%s with %v, needs %+v, dispatches %v", s.Phase, s.Locks, out.Needs, out.Dispatch)
	}
	run.Status.Steps[2].Phase = v1alpha1.StepSucceeded
	if out = decideLocked(t, run, epoch, nil); len(out.Dispatch) > 0 {
		t.Fatalf("its place is taken by %v", out.Dispatch)
	}
	if out, _ = decideAll(t, o, run, epoch, LocksAnswer{}); len(out.Dispatch) != 1 || out.Dispatch[0].ID != job("locked", 1) {
		t.Errorf("dispatches %v", out.Dispatch)
	}
}

// The place of one that ends as it would go on is free for others in the same decision.
//
// mutation: startSome that does not note the place that got free makes this fail.
func TestTheLockedPlaceOfAStepThatEndsIsFreeAtOnce(t *testing.T) {
	run := newRun(newStep("b"), newStep("a", withStepLocks(mutexOf("m")), input(`{"x":"${1/int(inputs.n)}"}`), continues))
	run.Spec.MaxParallelSteps, run.Spec.Inputs = 1, raw(`{"n":"1"}`)
	decideLocked(t, run, epoch, nil)
	run.Status.Steps[0] = v1alpha1.StepStatus{Name: "b", Phase: v1alpha1.StepPending}
	run.Status.Steps[1].Locks = []v1alpha1.LockHold{hold("mutex:team-a/m", 7)}
	run.Spec.Inputs = raw(`{"n":"0"}`)
	out := decideLocked(t, run, epoch, nil)
	if a := &out.Status.Steps[1]; a.Phase != v1alpha1.StepFailed || len(out.Dispatch) != 1 || out.Dispatch[0].ID != job("b", 1) {
		t.Errorf("a is %s, dispatches %v", a.Phase, out.Dispatch)
	}
}

// A step without locks gives its place up while it backs off. The message says for what it waits.
//
// mutations: a stepText, or a waitingReason, that does not look at places makes this fail.
func TestWhatAStepWaitsForThatBacksOffWithoutAPlace(t *testing.T) {
	items := newStep("b", forEach("${[1]}", 1, v1alpha1.FailStep))
	items.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m")}
	run := newRun(newStep("a"), items)
	run.Spec.MaxParallelSteps = 1
	decideLocked(t, run, epoch, nil)
	waits := map[string]LocksAnswer{"b/0": {State: LocksWaiting, Lock: "mutex:team-a/m"}}
	out := decideLocked(t, run, epoch, waits, failed("a", 1, "Broken", "x"))
	c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
	if want := "(attempt 1: Broken: x), and for a place of maxParallelSteps"; !strings.Contains(c.Message, want) || c.Reason != v1alpha1.ReasonWaitingForLock {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// A grant that finds no place is given back: a start of a rate is spent by then, and others were
// refused, or cancelled, for it.
//
// mutations: startSome that counts no asks, and one that has those with a place in line leave it
// for them, make this fail.
func TestNoMoreStepsAskForLocksThanThereArePlaces(t *testing.T) {
	var steps []v1alpha1.Step
	for i := range 10 {
		steps = append(steps, newStep(fmt.Sprint("s", i), withStepLocks(v1alpha1.LockRequest{Semaphore: "gpus", Key: fmt.Sprint(i)})))
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = 2
	answers := map[string]LocksAnswer{}
	for i, want := range []string{"s0 s1", "s2", "s3", ""} {
		out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Locks: answers}))
		if got := partsAsked(&out); got != want {
			t.Fatalf("round %d asks for %q, want %q", i, got, want)
		}
		answers["s0"], answers["s1"] = heldWith(7), waitsFor // all but s0 wait, until s3
		if i > 0 && want != "" {
			answers[want] = waitsFor
		}
		if want == "s3" {
			answers[want] = heldWith(8)
		}
	}
	if out := decideLocked(t, run, epoch, answers); len(out.Dispatch) != 2 {
		t.Errorf("dispatches %v", out.Dispatch)
	}
}

// Who waits in line is asked about until places are filled, and keeps its place in line until it is
// known that there is none.
//
// mutation: mayTake that counts those asked for among the places that are gone makes this fail.
func TestStepsInLineAreAskedAboutInTurn(t *testing.T) {
	var steps []v1alpha1.Step
	for i := range bounds.MaxLocks {
		steps = append(steps, newStep(fmt.Sprint("s", i), withStepLocks(mutexOf("m"))))
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = 1
	answers := map[string]LocksAnswer{}
	rounds := 0
	for ; ; rounds++ {
		out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Locks: answers}))
		if len(out.Needs.Locks) == 0 {
			break
		}
		for _, ask := range out.Needs.Locks {
			answers[ask.Part] = waitsFor
		}
	}
	if rounds != bounds.MaxLocks || len(answers) != rounds {
		t.Fatalf("%d rounds, %d answers", rounds, len(answers))
	}
	decideLocked(t, run, epoch, answers)
	glance := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1)}))
	if got := partsAsked(&glance); got != "s0" || glance.Status.Steps[bounds.MaxLocks-1].LockWait == nil {
		t.Errorf("asks for %q; the last waits for %v", got, glance.Status.Steps[bounds.MaxLocks-1].LockWait)
	}
}

func partsAsked(d *Decision) string {
	var parts []string
	for _, ask := range d.Needs.Locks {
		parts = append(parts, ask.Part)
	}
	return strings.Join(parts, " ")
}
