// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
// mutations: AskInTurn that asks whatever was granted, a hasPlace without grants, and mayTake that
// has steps without locks take what those who ask may use, make this fail.
func TestNoMoreStepsAskForLocksThanThereArePlaces(t *testing.T) {
	var steps []v1alpha1.Step
	for i := range 10 {
		steps = append(steps, newStep(fmt.Sprint("s", i), withStepLocks(v1alpha1.LockRequest{Semaphore: "gpus", Key: fmt.Sprint(i)})))
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = 2
	run.Spec.Steps = append(run.Spec.Steps, newStep("free"))
	answers := map[string]LocksAnswer{}
	out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1)}))
	all := map[string]LocksAnswer{"s0": heldWith(7), "s1": waitsFor, "s2": waitsFor, "s3": heldWith(8), "s4": heldWith(9)}
	if got := askInTurn(out.Needs.Locks, all, answers); got != "s0 s1 s2 s3" || len(out.Dispatch) > 0 {
		t.Fatalf("asks for %q, dispatches %v", got, out.Dispatch)
	}
	if out = decideLocked(t, run, epoch, answers); len(out.Needs.Locks) > 0 {
		t.Errorf("asks for %q, too", partsAsked(&out))
	}
	if diff := cmp.Diff([]string{"s0", "s3"}, names(out.Dispatch)); diff != "" {
		t.Errorf("dispatched (-want +got):\n%s", diff)
	}
}

// Where a refusal ends the run, or the step of an item, nothing is asked for what is over by that:
// no other run is cancelled for it. Else the next one is asked about in the same turn.
//
// mutations: AskInTurn that goes on after any refusal, or after none, and lockItem that does not
// say what a refusal means for its step, make this fail.
func TestNobodyAsksForLocksForWhatARefusalEnds(t *testing.T) {
	refused := LocksAnswer{State: LocksRefused, Reason: v1alpha1.ReasonLocksBusy, Lock: "mutex:team-a/m"}
	for name, c := range map[string]struct {
		opts  []stepOption
		want  string
		ended bool
	}{"the run ends": {nil, "s0", true}, "it goes on": {[]stepOption{continues}, "s0 s1", false}} {
		run := newRun(newStep("s0", append(c.opts, withStepLocks(mutexOf("m")))...), newStep("s1", withStepLocks(mutexOf("n"))))
		run.Spec.MaxParallelSteps = 1
		answers, all := map[string]LocksAnswer{}, map[string]LocksAnswer{"s0": refused, "s1": heldWith(7)}
		out := decideLocked(t, run, epoch, nil)
		if got := askInTurn(out.Needs.Locks, all, answers); got != c.want {
			t.Errorf("%s: asks for %q", name, got)
		}
		out = decideLocked(t, run, epoch, answers)
		if got := partsAsked(&out); got != "" || Finished(run) != c.ended {
			t.Errorf("%s: asks for %q after that, is over: %v", name, got, Finished(run))
		}
	}
	run := lockedItems(2, 2, v1alpha1.FailStep)
	out := decideLocked(t, run, epoch, nil)
	if got := askInTurn(out.Needs.Locks, map[string]LocksAnswer{part(0): refused, part(1): heldWith(7)}, map[string]LocksAnswer{}); got != part(0) {
		t.Errorf("of items it asks for %q", got)
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
	answers, all := map[string]LocksAnswer{}, map[string]LocksAnswer{}
	for i := range steps {
		all[steps[i].Name] = waitsFor
	}
	rounds := 1
	for ; ; rounds++ {
		out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Locks: answers}))
		if len(out.Needs.Locks) == 0 {
			break
		}
		askInTurn(out.Needs.Locks, all, answers)
	}
	if rounds != 2 || len(answers) != bounds.MaxLocks {
		t.Fatalf("%d rounds, %d answers", rounds, len(answers))
	}
	decideLocked(t, run, epoch, answers)
	glance := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1)}))
	if got := partsAsked(&glance); !strings.HasPrefix(got, "s0 s1 ") || glance.Status.Steps[bounds.MaxLocks-1].LockWait == nil {
		t.Errorf("asks for %q; the last waits for %v", got, glance.Status.Steps[bounds.MaxLocks-1].LockWait)
	}
}

// The other steps leave their lines in the decision in which the last place is taken.
//
// mutation: startAll without leaveLines makes this fail.
func TestWhoFindsNoPlaceLeavesTheLineAtOnce(t *testing.T) {
	run := newRun(newStep("s0", withStepLocks(mutexOf("m"))), newStep("s1", withStepLocks(mutexOf("n"))))
	run.Spec.MaxParallelSteps = 1
	answers := map[string]LocksAnswer{"s0": waitsFor, "s1": waitsFor}
	if decideLocked(t, run, epoch, answers); run.Status.Steps[0].LockWait == nil {
		t.Fatal("s0 is in no line")
	}
	answers["s1"] = heldWith(7)
	out := decideLocked(t, run, epoch, answers)
	if s := out.Status.Steps; s[0].LockWait != nil || s[1].Phase != v1alpha1.StepDispatched {
		t.Errorf("s0 waits for %v, s1 is %s", s[0].LockWait, s[1].Phase)
	}
}

// Who was granted its locks has a place for them, whatever those before it found meanwhile.
//
// mutation: a hasPlace without grants makes this fail.
func TestAGrantIsUsedThoughAStepBeforeItCanBeginMeanwhile(t *testing.T) {
	run := newRun(newStep("s0", input(`{"pad":"`+strings.Repeat("x", 2*bounds.MaxQuickBytes)+`"}`)),
		newStep("s1", withStepLocks(mutexOf("m"))), newStep("s2", withStepLocks(mutexOf("n"))))
	run.Spec.MaxParallelSteps = 1
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Quick: true})
	out := Decide(in)
	if !out.Cut || !strings.HasPrefix(partsAsked(&out), "s1") {
		t.Fatalf("is cut: %v, asks for %q", out.Cut, partsAsked(&out))
	}
	out = decideLocked(t, run, epoch, map[string]LocksAnswer{"s1": heldWith(7)})
	if diff := cmp.Diff([]string{"s1"}, names(out.Dispatch)); diff != "" || len(out.Needs.Locks) > 0 {
		t.Errorf("asks for %q, dispatched (-want +got):\n%s", partsAsked(&out), diff)
	}
}

// mutations: complete without pruneAsks, and pruneAsks that looks at steps only, or at runs that
// are over only, make this fail.
func TestNobodyAsksForLocksForWhatIsOver(t *testing.T) {
	locked, fails := newStep("a", withStepLocks(mutexOf("m"))), newStep("b", input(`{"x":"${inputs.none}"}`))
	clean := newRun(locked, fails)
	clean.Spec.Finally = []v1alpha1.Step{newStep("f", withStepLocks(mutexOf("m")))}
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		want string
	}{"the run ends": {newRun(locked, fails), ""}, "the clean-up asks": {clean, "f"}} {
		out := decideLocked(t, c.run, epoch, nil)
		if got := partsAsked(&out); got != c.want {
			t.Errorf("%s: asks for %q", name, got)
		}
	}
	whole := newRun(newStep("a"))
	whole.Spec.Locks, whole.DeletionTimestamp = []v1alpha1.LockRequest{mutexOf("m")}, bounds.Second(epoch)
	if out := decideLocked(t, whole, epoch, nil); len(out.Needs.Locks) > 0 {
		t.Errorf("asks for %q", partsAsked(&out))
	}
}

// askInTurn adds the answers to questions that a shell asks, and names their parts.
func askInTurn(asks []LocksAsk, all, answers map[string]LocksAnswer) string {
	var parts []string
	AskInTurn(asks, func(ask LocksAsk) LocksState {
		parts, answers[ask.Part] = append(parts, ask.Part), all[ask.Part]
		return all[ask.Part].State
	})
	return strings.Join(parts, " ")
}

func partsAsked(d *Decision) string {
	var parts []string
	for _, ask := range d.Needs.Locks {
		parts = append(parts, ask.Part)
	}
	return strings.Join(parts, " ")
}
