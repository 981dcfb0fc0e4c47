// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// What is due and cannot begin, as the object store is away, is no moment to look again: the shell
// comes again at its own pace.
//
// mutation: a wakeAt that adds what is due in spite of it has the run looked at without a pause.
func TestARetryThatLacksAnOutputDoesNotSpin(t *testing.T) {
	for name, b := range map[string]v1alpha1.Step{
		"step": newStep("b", after("a"), input(`{"x":"${steps.a.output}"}`)),
		"item": newStep("b", after("a"), forEach("${[1]}", 1, ""), input(`{"x":"${steps.a.output}"}`)),
	} {
		t.Run(name, func(t *testing.T) {
			o, run := objects{}, newRun(newStep("a"), b)
			o.advance(t, run, epoch)
			o.advance(t, run, epoch, o.put("a", 1, text(100<<10)))
			fail := failed("b", 1, "Flaky", "")
			if name == "item" {
				fail.ID.Item = "0"
			}
			now := o.advance(t, run, epoch, fail).Wake.Add(time.Second)
			d := Decide(letIn(Input{Run: run, Now: now, Lock: held(1), Payloads: Payloads{}}))
			if len(d.Needs.Load) == 0 || !d.Wake.IsZero() && d.Wake.Sub(now) < time.Second {
				t.Errorf("lacks %d outputs, wakes in %s", len(d.Needs.Load), d.Wake.Sub(now))
			}
		})
	}
}

// The run is first seen 10 s after it was made, when its time in the queue is over by that: the
// clock begins then.
//
// mutation: an admit that starts the queue clock after the wait for a Workflow.
func TestTemplate_AQueueTimeoutDoesNotSpinWhileTheWorkflowIsAwaited(t *testing.T) {
	run := newRun()
	run.Spec.QueueTimeoutSeconds = new(int32(5))
	seen := epoch.Add(10 * time.Second)
	for _, after := range []time.Duration{0, 2 * time.Second, 5 * time.Second} {
		d := decideTemplate(run, seen.Add(after), Template{Missing: "it is not"})
		if over := after == 5*time.Second; d.Status.CompletedAt != nil != over || !over && !d.Wake.Equal(seen.Add(5*time.Second)) {
			t.Errorf("at +%s it is %s, and wakes in %s", after, d.Status.Phase, d.Wake.Sub(seen.Add(after)))
		}
		if d.Changed {
			run.Status = persisted(t, &d.Status)
		}
	}
}

// decideAll is one pass of the shell: outputs are loaded anew, and each lock has the same answer.
// It says how many bytes were loaded.
func decideAll(t *testing.T, o objects, run *v1alpha1.WorkflowRun, now time.Time, answer LocksAnswer) (out Decision, loaded int64) {
	t.Helper()
	return decideKnowing(t, o, run, now, nil, answer)
}

// decideKnowing is decideAll of a shell that remembers lists.
func decideKnowing(
	t *testing.T, o objects, run *v1alpha1.WorkflowRun, now time.Time, lists map[string][]any, answer LocksAnswer,
) (out Decision, loaded int64) {
	t.Helper()
	in := letIn(Input{Run: run, Now: now, Lock: held(1), Payloads: Payloads{}, Locks: map[string]LocksAnswer{}, Lists: lists})
	for range 50 {
		out = Decide(in)
		in.Evaluated, in.Lists = out.Evaluated, out.Lists
		if !out.Needs.Any() {
			break
		}
		for _, ask := range out.Needs.Locks {
			in.Locks[ask.Part] = answer
		}
		for _, ref := range out.Needs.Check {
			in.Payloads[ref.Name] = Payload{Problem: o.problem(ref)}
		}
		for _, ref := range out.Needs.Load {
			in.Payloads[ref.Name] = Payload{Data: o[ref.Name], Problem: o.problem(ref)}
			loaded += ref.Size
		}
	}
	if out.Changed {
		run.Status = persisted(t, &out.Status)
	}
	return out, loaded
}

// A step that waits for a lock reads nothing meanwhile: others have what a decision may read.
//
// mutation: a prepareLocked that prepares what waits makes this fail.
func TestAStepThatWaitsForALockTakesNothingOfWhatADecisionReads(t *testing.T) {
	o := objects{}
	run := newRun(newStep("a"), newStep("b"),
		newStep("p", after("a"), input(`{"x":"${size(steps.a.output)}"}`), withStepLocks(mutexOf("db"))),
		newStep("q", after("b"), input(`{"x":"${size(steps.b.output)}"}`)))
	o.advance(t, run, epoch)
	waiting := LocksAnswer{State: LocksWaiting, Lock: "mutex:team-a/db"}
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{o.put("a", 1, text(5<<20)), o.put("b", 1, text(5<<20))}, Payloads: Payloads{}})
	for _, ref := range Decide(in).Needs.Check {
		in.Payloads[ref.Name] = Payload{Problem: o.problem(ref)}
	}
	out := Decide(in)
	run.Status = persisted(t, &out.Status)
	for range 3 {
		decideAll(t, o, run, epoch, waiting)
	}
	if got := run.Status.Steps[3].Phase; got != v1alpha1.StepDispatched {
		t.Errorf("a step without a lock is %s beside one that waits", got)
	}
	out, loaded := decideAll(t, o, run, epoch, waiting)
	if loaded > 0 || !out.Wake.IsZero() && out.Wake.Sub(epoch) < time.Second {
		t.Errorf("%d bytes are loaded for what waits, and it is looked at again in %s", loaded, out.Wake.Sub(epoch))
	}
}

// withOutputs is a run whose first steps a and b ended with outputs of so many bytes each, which
// are in the object store.
func withOutputs(t *testing.T, o objects, bytes int, more ...v1alpha1.Step) *v1alpha1.WorkflowRun {
	t.Helper()
	run := newRun(append([]v1alpha1.Step{newStep("a"), newStep("b")}, more...)...)
	o.advance(t, run, epoch)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{o.put("a", 1, text(bytes)), o.put("b", 1, text(bytes))}, Payloads: Payloads{}})
	for _, ref := range Decide(in).Needs.Check {
		in.Payloads[ref.Name] = Payload{Problem: o.problem(ref)}
	}
	out := Decide(in)
	run.Status = persisted(t, &out.Status)
	return run
}

// What the key of a lock reads is read when the wait begins, and not in each pass: others begin
// meanwhile, and nobody looks without a pause.
//
// mutations: a knownWants that knows none, a rememberKeys that keeps none of steps, or none of
// items, and a locked that makes a renderer whatever is known make this fail.
func TestWhatWaitsForALockWhoseKeyReadsMuchTakesNothingOfWhatADecisionReads(t *testing.T) {
	key := mutexOf("db-${type(steps.a.output) == string}")
	items := newStep("p", after("a"), forEach("${[1,2,3]}", 3, v1alpha1.FailStep))
	items.ForEach.Locks = []v1alpha1.LockRequest{key}
	for name, p := range map[string]v1alpha1.Step{"step": newStep("p", after("a"), withStepLocks(key)), "items": items} {
		t.Run(name, func(t *testing.T) {
			o := objects{}
			run := withOutputs(t, o, 5<<20, p, newStep("q", after("b"), input(`{"x":"${size(steps.b.output)}"}`)))
			waiting := LocksAnswer{State: LocksWaiting, Lock: "mutex:team-a/db-true"}
			var out Decision
			for range 4 {
				out, _ = decideKnowing(t, o, run, epoch, out.Lists, waiting)
			}
			if got := run.Status.Steps[3].Phase; got != v1alpha1.StepDispatched {
				t.Errorf("a step without a lock is %s beside what waits", got)
			}
			out, loaded := decideKnowing(t, o, run, epoch, out.Lists, waiting)
			if loaded > 0 || !out.Wake.IsZero() && out.Wake.Sub(epoch) < time.Second {
				t.Errorf("%d bytes are loaded for what waits, and it is looked at again in %s", loaded, out.Wake.Sub(epoch))
			}
			if glance := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Lists: out.Lists, Glance: true})); len(glance.Needs.Locks) > 0 || len(glance.Lists) != len(out.Lists) {
				t.Errorf("a glance asks for %v, and knows %v", glance.Needs.Locks, glance.Lists)
			}
			out, _ = decideKnowing(t, o, run, epoch, out.Lists, heldWith(2))
			if got := len(InFlight(run)); got < 2 {
				t.Errorf("%d jobs are in flight with the locks", got)
			}
			out, _ = decideKnowing(t, o, run, epoch, out.Lists, waiting)
			for name := range out.Lists {
				if name != listName(run, 2) {
					t.Errorf("%s is remembered of what waits no more", name)
				}
			}
		})
	}
}

// A replica that has forgotten the keys, or has others of a step, evaluates them.
//
// mutation: a knownWants that takes keys of another number makes this fail.
func TestKeysOfLocksThatWereForgottenAreEvaluatedAgain(t *testing.T) {
	run := newRun(newStep("p", withStepLocks(mutexOf("db"))))
	waiting := LocksAnswer{State: LocksWaiting, Lock: "mutex:team-a/db"}
	out, _ := decideKnowing(t, objects{}, run, epoch, nil, waiting)
	if keys := out.Lists["locks/p"]; len(keys) != 1 || keys[0] != "db" {
		t.Fatalf("it remembers %v", out.Lists)
	}
	for name, lists := range map[string]map[string][]any{"none": nil, "too many": {"locks/p": {"a", "b"}}, "the same": out.Lists} {
		asks := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Lists: lists})).Needs.Locks
		if len(asks) != 1 || asks[0].Wants[0].Name != "mutex:team-a/db" {
			t.Errorf("with %s remembered it asks for %+v", name, asks)
		}
	}
}

// A decision that is not written may have evaluated another key: it did not know a result yet.
//
// mutations: a knownWants that asks for no wait in status, or not which lock it is for, makes this
// fail.
func TestKeysOfADecisionThatWasNotWrittenAreNotBelieved(t *testing.T) {
	run := newRun(newStep("p", withStepLocks(mutexOf("db"))))
	waiting := LocksAnswer{State: LocksWaiting, Lock: "mutex:team-a/db"}
	other := map[string][]any{"locks/p": {"other"}}
	for range 2 { // before it waits, and while it does
		asks := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Lists: other})).Needs.Locks
		if len(asks) != 1 || asks[0].Wants[0].Name != "mutex:team-a/db" {
			t.Errorf("it asks for %+v", asks)
		}
		decideKnowing(t, objects{}, run, epoch, nil, waiting)
	}
	if run.Status.Steps[0].LockWait == nil {
		t.Error("it does not wait")
	}
}

// So do the items of a step.
//
// mutation: ItemLocks that loads what job.input reads makes this fail, and so does a launchesOf
// that makes a renderer for none.
func TestItemsThatWaitForLocksTakeNothingOfWhatADecisionReads(t *testing.T) {
	o := objects{}
	run := newRun(newStep("a"), newStep("b"),
		newStep("p", after("a"), forEach("${[1,2,3]}", 3, v1alpha1.FailStep), input(`{"x":"${size(steps.a.output)}"}`)),
		newStep("q", after("b"), input(`{"x":"${size(steps.b.output)}"}`)))
	run.Spec.Steps[2].ForEach.Locks = []v1alpha1.LockRequest{mutexOf("db-${item}")}
	o.advance(t, run, epoch)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{o.put("a", 1, text(5<<20)), o.put("b", 1, text(5<<20))}, Payloads: Payloads{}})
	for _, ref := range Decide(in).Needs.Check {
		in.Payloads[ref.Name] = Payload{Problem: o.problem(ref)}
	}
	out := Decide(in)
	run.Status = persisted(t, &out.Status)
	waiting := LocksAnswer{State: LocksWaiting, Lock: "mutex:team-a/db"}
	for range 4 {
		out, _ = decideKnowing(t, o, run, epoch, out.Lists, waiting)
	}
	if p, q := run.Status.Steps[2].Phase, run.Status.Steps[3].Phase; p != v1alpha1.StepRunning || q != v1alpha1.StepDispatched {
		t.Fatalf("a step with items that wait is %s, one without a lock %s", p, q)
	}
	out, loaded := decideKnowing(t, o, run, epoch, out.Lists, waiting)
	if loaded > 0 || !out.Wake.IsZero() && out.Wake.Sub(epoch) < time.Second {
		t.Errorf("%d bytes are loaded for what waits, and it is looked at again in %s", loaded, out.Wake.Sub(epoch))
	}
	for range 2 { // one decision does not render all
		out, _ = decideKnowing(t, o, run, epoch, out.Lists, heldWith(2))
	}
	if got := len(InFlight(run)); got != 4 {
		t.Errorf("%d jobs are in flight once the items have their locks", got)
	}
}

// mutation: a launchItem that frees no place of an item with locks makes this fail.
func TestItemsWithLocksWhoseInputFailsLeaveTheirPlacesAtOnce(t *testing.T) {
	run := newRun(newStep("p", forEach("${[1,2,3]}", 1, v1alpha1.Collect), input(`{"x":"${item.none}"}`)))
	run.Spec.Steps[0].ForEach.Locks = []v1alpha1.LockRequest{mutexOf("db")}
	decideAll(t, objects{}, run, epoch, heldWith(2))
	if s := run.Status.Steps[0]; s.ForEach == nil || s.ForEach.Failed != 3 {
		t.Errorf("%+v", s.ForEach)
	}
}

// The keys of locks read an output that is loaded for them, and one that is no JSON ends the step.
//
// mutation: ItemLocks that does not load what the keys read makes this fail.
func TestKeysOfLocksOfItemsReadOutputs(t *testing.T) {
	o := objects{}
	run := newRun(newStep("a"), newStep("p", after("a"), forEach("${[1,2]}", 2, v1alpha1.FailStep)))
	run.Spec.Steps[1].ForEach.Locks = []v1alpha1.LockRequest{mutexOf("${steps.a.output}-${item}")}
	o.advance(t, run, epoch)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{o.put("a", 1, `"db"`)}, Payloads: Payloads{}})
	for _, ref := range Decide(in).Needs.Check {
		in.Payloads[ref.Name] = Payload{Problem: o.problem(ref)}
	}
	out := Decide(in)
	run.Status = persisted(t, &out.Status)
	lists := map[string][]any{listName(run, 1): {float64(1), float64(2)}}
	odd := run.DeepCopy()

	in = letIn(Input{Run: run, Now: epoch, Lock: held(1), Payloads: Payloads{}, Lists: lists})
	if needs := Decide(in).Needs; len(needs.Load) != 1 || len(needs.Locks) != 0 {
		t.Errorf("needs %+v", needs)
	}
	out, _ = decideKnowing(t, o, run, epoch, lists, heldWith(2))
	if got := len(InFlight(run)); got != 2 {
		t.Errorf("%d jobs are in flight: %+v", got, out.Events)
	}

	odd.Status.Steps[0].Output, odd.Status.Steps[0].OutputRef = &runtime.RawExtension{Raw: []byte("{")}, nil
	out = Decide(letIn(Input{Run: odd, Now: epoch, Lock: held(1), Lists: map[string][]any{listName(odd, 1): {float64(1), float64(2)}}}))
	if s := out.Status.Steps[1]; s.Phase != v1alpha1.StepFailed || s.Error == nil || s.Error.Code != facts.CodeExpressionError {
		t.Errorf("%s, %+v", s.Phase, s.Error)
	}
}

// mutations: a mayGoOn that does not ask for locks, an awaitLocks that counts no progress, and a
// prepareLocked that goes on while the store of locks is away make this fail.
func TestStepsThatWaitForLocksAreWithinTheBudget(t *testing.T) {
	for name, answer := range map[string]LocksAnswer{
		"held by others":    {State: LocksWaiting, Lock: "mutex:team-a/db"},
		"the store is away": {State: LocksUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			run := costlyRun(60)
			for i := range run.Spec.Steps {
				run.Spec.Steps[i].Locks = []v1alpha1.LockRequest{mutexOf("db")}
			}
			for k := range 70 {
				out, _ := decideAll(t, objects{}, run, epoch.Add(time.Duration(k)*time.Second), answer)
				if most := bounds.MaxDecisionCost + 4*expr.MaxCost; taken(out) > most {
					t.Fatalf("pass %d takes %d units, at most %d", k, taken(out), most)
				}
			}
			for i := range run.Status.Steps {
				if waits := run.Status.Steps[i].LockWait != nil; waits != (answer.State == LocksWaiting) {
					t.Errorf("step %d waits: %t", i, waits)
				}
			}
		})
	}
}
