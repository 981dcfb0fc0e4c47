// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv/onebyone"
)

func suspended(s *v1alpha1.WorkflowRunSpec) { s.Suspend = true }

func ofClass(class string) func(*v1alpha1.WorkflowRunSpec) {
	return func(s *v1alpha1.WorkflowRunSpec) { s.WorkloadClass = class }
}

// A process dies between the end of a run, or its deletion, and Release.
// mutation: repair without Drop makes this fail, as does one without wakeNext after it.
func TestController_ResyncFreesWhatACrashLeft(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(w *world, run *v1alpha1.WorkflowRun)
		drift string
	}{
		"the run ended":     {func(w *world, run *v1alpha1.WorkflowRun) { w.write(run, ended) }, "1 0 0"}, // b is found gone when it is to be woken
		"the run is gone":   {func(w *world, run *v1alpha1.WorkflowRun) { w.remove(run) }, "1 0 1"},
		"another is called": {func(w *world, run *v1alpha1.WorkflowRun) { w.remove(run); w.run(run.Name, suspended) }, "1 0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			a, b, waits := w.boss.admits(w.run("a")), w.run("b"), w.run("c")
			w.boss.asks(b, false)
			w.boss.asks(waits, false)
			c.end(w, a)
			w.remove(b)
			w.boss.woke()
			next := w.instance() // the next leader
			next.looksLong()
			next.wakes("c")
			w.holds(nil, runs(waits))
			next.drifted(c.drift)
			next.asks(waits, true)
			next.looks()
			next.drifted(c.drift)
		})
	}
}

// Two clusters were given one Redis, and the other one has no such run.
//
// mutation: a store that does not look whose Redis is makes this fail.
func TestAResyncOfAnotherInstallationFreesNoSlot(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	ours := w.instanceOf("a")
	ours.looks()
	a := ours.admits(w.run("a"))
	theirs := w.instanceOf("b")
	theirs.stale = snapshot{}
	theirs.live = snapshot{}
	_, err := theirs.resync(w.ctx())
	if _, foreign := errors.AsType[*store.ForeignError](err); !foreign {
		t.Errorf("the other one's resync: %v", err)
	}
	w.holds(runs(a), nil)
	ours.looks()
	ours.asks(w.run("b"), false)
}

// mutation: gone without liveUIDs makes this fail: the slot of a run that the cache does not have
// yet is freed.
func TestARunThatTheCacheDoesNotHaveYetKeepsItsSlot(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.freeze()
	a, b := w.run("a"), w.run("b")
	other := w.instance()
	other.admits(a)
	other.asks(b, false)
	w.boss.looksLong()
	w.holds(runs(a), runs(b))
	if w.boss.calls.of("list") == 0 {
		t.Error("no live list was made")
	}
	w.boss.drifted("0 0 0")
}

// mutation: restore without the live read makes the second part of this fail.
func TestController_ResyncRestoresSlots(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.admits(w.run("opens"))
	w.boss.releases(w.write(w.get("opens"), ended))
	a := w.write(w.run("a"), admittedUnder("batch")) // it has no slot: a backup of the API server's data was restored, say
	w.boss.looks()
	w.holds(runs(a), nil)
	w.boss.drifted("0 1 0")
	w.boss.asks(w.run("b"), false)

	w.boss.freeze()
	w.boss.releases(w.write(a, ended))
	w.boss.looks() // the cache has it as admitted still
	w.holds(nil, runs(w.get("b")))
	w.boss.drifted("0 1 0")
}

// mutation: repair that drops before it restores makes this fail: who is woken for what was freed
// is let in.
func TestController_ResyncCountsWhoIsInBeforeItFrees(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	over, waiting := w.boss.admits(w.run("over")), w.run("waiting")
	w.boss.asks(waiting, false)
	w.write(over, ended)
	in := w.write(w.run("in"), admittedUnder("batch"))
	other := w.instance()
	w.boss.beforeR = func() {
		if a, err := other.Admit(w.ctx(), waiting, tenant, w.effective("batch")); a.Admitted || err != nil {
			t.Errorf("let in during the round: %+v, %v", a, err)
		}
	}
	w.boss.looks()
	w.boss.beforeR = nil
	w.holds(runs(in), runs(waiting))
}

// The controller wakes nobody who is not in the queue, so a lost wake-up would last for ever.
// mutation: settle that wakes nobody makes this fail.
func TestController_ResyncWakesWhoWasForgotten(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 2)
	w.policy("full", 0)
	w.boss.looks()
	queued, noPlace, granted, full := w.run("in-line"), w.run("no-place"), w.run("granted"), w.run("full", ofClass("full"))
	w.policy("batch", 0)
	w.boss.asks(queued, false)
	w.policy("batch", 2)
	w.boss.asks(granted, true) // and not written: its process died
	if a, err := w.boss.Admit(w.ctx(), full, tenant, w.effective("full")); a.Admitted || err != nil {
		t.Fatalf("admit: %+v, %v", a, err)
	}
	w.run("suspended", suspended)
	w.create("new")
	w.run("free", ofClass("no-policy"))
	w.boss.looks()
	w.boss.wakes("free", "granted", "in-line", "new", "no-place")
	_ = noPlace
}

// mutation: PolicyChanged that does nothing makes this fail.
func TestAChangedPolicyWakesWhoCanBeAdmittedNow(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	in, a, b, c := w.boss.admits(w.run("in")), w.run("a"), w.run("b"), w.run("c")
	for _, run := range runs(a, b, c) {
		w.boss.asks(run, false)
	}
	w.boss.looks()
	w.boss.wakes()
	running := w.start(w.boss)
	w.policy("batch", 3)
	running.resyncs(func() { w.changesLater(w.boss.PolicyChanged) })
	w.boss.wakes("a", "b")
	w.policy("batch", 1)
	running.resyncs(func() { w.changesLater(w.boss.PolicyChanged) })
	w.boss.wakes()
	w.holds(runs(in), runs(a, b, c))

	must(t, w.client.Delete(w.ctx(), &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}))
	running.resyncs(func() { w.changesLater(w.boss.PolicyChanged) })
	w.boss.wakes("a", "b", "c")
}

// A run's class went to another policy, or it was suspended, and nobody left: its place keeps
// others from theirs.
// mutation: suspect that is never satisfied makes this fail; so does one that is so at once.
func TestARunThatWaitsElsewhereGivesUpItsPlace(t *testing.T) {
	for name, move := range map[string]func(w *world, run *v1alpha1.WorkflowRun){
		"it was suspended": func(w *world, run *v1alpha1.WorkflowRun) {
			run.Spec.Suspend = true
			must(w.t, w.client.Update(w.ctx(), run))
		},
		"its class has another policy": func(w *world, _ *v1alpha1.WorkflowRun) { w.policyOf("new", "moved", 5) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policyOf("batch", "batch", 1, "moved")
			w.boss.looks()
			in, first, second := w.boss.admits(w.run("in")), w.run("first", ofClass("moved")), w.run("second")
			w.boss.asks(first, false)
			w.boss.asks(second, false)
			w.policyOf("batch", "batch", 1)
			move(w, first)
			w.write(in, ended)
			w.boss.looks()
			w.boss.woke()
			w.holds(nil, runs(first, second))

			w.clock.Step(suspicionTime)
			w.boss.looks()
			w.holds(nil, runs(second))
			if !slices.Contains(w.boss.woke(), "second") {
				t.Error("the next was not woken")
			}
		})
	}
}

// A policy that is replaced is away for a moment, and who waits under it keeps its place: to take
// it back costs a write of each.
//
// mutation: suspect that has no more patience where the policy is gone, or that has it for good.
func TestWhoWaitsUnderAPolicyThatIsGoneKeepsItsPlaceForAMoment(t *testing.T) {
	w := newWorld(t)
	w.policyOf("batch", "batch", 1)
	w.boss.looks()
	w.boss.admits(w.run("in"))
	waiting := w.run("waiting")
	w.boss.asks(waiting, false)
	must(t, w.client.Delete(w.ctx(), &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}))
	w.boss.looks()
	w.clock.Step(30 * time.Second) // for as long its runs wait whether it comes back
	w.boss.looks()
	w.holds(runs(w.get("in")), runs(waiting))
	if now := w.get("waiting"); now.ResourceVersion != waiting.ResourceVersion {
		t.Error("it was written")
	}
	w.clock.Step(30 * time.Second)
	w.boss.looks()
	w.holds(runs(w.get("in")), nil)
}

// A slot was granted, and its process is paused; then the run's class went to another policy, under
// which it waits.
// mutation: takeBack without mark makes this fail: the paused process writes, and two are in.
// mutation: takeBack without putBack makes the second case fail.
func TestASlotThatIsTakenBackCannotBeUsed(t *testing.T) {
	moved := func(t *testing.T) (w *world, run *v1alpha1.WorkflowRun) {
		w = newWorld(t)
		w.policyOf("batch", "batch", 1, "moved")
		w.boss.looks()
		run = w.run("a", ofClass("moved"))
		w.instance().asks(run, true)
		w.policyOf("batch", "batch", 1)
		w.policyOf("new", "moved", 0)
		w.boss.looks()
		w.holds(runs(run), nil)
		w.clock.Step(suspicionTime)
		return w, run
	}
	t.Run("the paused process goes on afterwards", func(t *testing.T) {
		w, run := moved(t)
		w.boss.looks()
		w.holds(nil, nil)
		w.boss.admits(w.run("b"))
		if _, err := w.tryWrite(run, admittedUnder("batch")); !apierrors.IsConflict(err) {
			t.Errorf("the grant was written: %v", err)
		}
	})
	t.Run("its annotations are full", func(t *testing.T) {
		w, run := moved(t)
		run = w.annotated(w.get(run.Name))
		w.boss.looks()
		w.holds(nil, nil)
		w.boss.admits(w.run("b"))
		if _, err := w.tryWrite(run, admittedUnder("batch")); !apierrors.IsConflict(err) {
			t.Errorf("the grant was written: %v", err)
		}
	})
	t.Run("the paused process went on before", func(t *testing.T) {
		w, run := moved(t)
		var once sync.Once
		w.boss.beforeA = func(op string) {
			if op == "patch" {
				once.Do(func() { w.write(run, admittedUnder("batch")) })
			}
		}
		w.boss.looks()
		w.holds(runs(run), nil)
	})
	t.Run("the round is paused, and the run asks anew, by an old policy", func(t *testing.T) {
		w, run := moved(t)
		p := w.effective("batch")
		marked, calls := false, 0
		w.boss.beforeA = func(op string) { marked = marked || op == "patch" }
		w.boss.beforeR = func() {
			if !marked {
				return
			}
			if calls++; calls == 1 {
				now := w.get(run.Name)
				if a, err := w.instance().Admit(w.ctx(), now, tenant, p); !a.Admitted || err != nil {
					t.Errorf("admit: %+v, %v", a, err)
				}
				w.write(now, admittedUnder("batch"))
			}
		}
		w.boss.looks()
		w.holds(runs(run), nil)
	})
}

// mutation: a repair that ends the resync at its first error makes this fail.
func TestWhatCannotBeDoneAtOneQuotaKeepsNoOther(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.policy("other", 1)
	w.boss.looks()
	for _, class := range []string{"batch", "other"} {
		run := w.run("over-"+class, ofClass(class))
		if a, err := w.boss.Admit(w.ctx(), run, tenant, w.effective(class)); !a.Admitted || err != nil {
			t.Fatalf("admit: %+v, %v", a, err)
		}
		w.write(run, func(st *v1alpha1.WorkflowRunStatus) { admittedUnder(class)(st); ended(st) })
	}
	w.write(w.run("missing"), admittedUnder("batch"))
	broken := errors.New("test")
	w.boss.refuseGet = broken
	if _, err := w.boss.resync(w.ctx()); !errors.Is(err, broken) {
		t.Fatalf("round: %v; want the cause", err)
	}
	b, err := w.boss.quota.Snapshot(w.ctx(), store.Key{Policy: "other", Tenant: tenant})
	if err != nil || len(b.Slots) != 0 {
		t.Errorf("the other gate: %+v, %v; want it repaired", b, err)
	}
	w.boss.refuseGet = nil
	w.boss.looks()
	w.holds(runs(w.get("missing")), nil)
}

// mutation: prune that does nothing makes this fail.
func TestNamesOfRunsThatDoNotWaitAreForgotten(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	in, waits, gone := w.run("in"), w.run("waits"), w.run("gone")
	other := w.instance()
	w.boss.asks(in, true)
	for _, run := range runs(waits, gone) {
		w.boss.asks(run, false)
	}
	w.remove(gone)
	other.admits(in)
	w.boss.looks()
	if len(w.boss.names) != 1 || w.boss.names[waits.UID].Name != "waits" {
		t.Errorf("names: %v; want that of the run that waits", w.boss.names)
	}
}

// mutation: a Start that waits 30 s before its first resync, that does not end, does not try again
// after a second, or asks a Redis that cannot be used again and again, makes this fail.
func TestStart(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	running := w.start(w.boss)
	a, b := w.boss.admits(w.run("a")), w.run("b")
	w.boss.asks(b, false)
	w.write(a, ended)
	running.rests(func() { w.clock.Step(resyncPause - time.Millisecond) })
	running.resyncs(func() { w.clock.Step(time.Millisecond) })
	w.boss.wakes("b")

	w.server.Stop()
	running.resyncs(func() { w.changesLater(w.boss.kicks.Kick) })
	running.rests(func() {
		w.boss.kicks.Kick() // does not hasten what fails
		w.clock.Step(resyncs.Retry - time.Millisecond)
	})
	running.resyncs(func() { w.clock.Step(time.Millisecond) })
	running.rests(func() { w.clock.Step(2*resyncs.Retry - time.Millisecond) })
	w.server.Restart()
	running.resyncs(func() { w.clock.Step(time.Millisecond) })
	w.boss.wakes("b")
}

// changesLater has something ask for a resync a while after the last one: not before it is done.
func (w *world) changesLater(kick func()) {
	w.clock.Step(time.Second)
	kick()
}

// mutation: liveUIDs that ends after its first page frees the slots of the runs of the others.
func TestARunOfALaterPageKeepsItsSlot(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 3)
	w.boss.looks()
	w.boss.freeze()
	a, b, c := w.run("a"), w.run("b"), w.run("c")
	other := w.instance()
	for _, run := range runs(a, b, c) {
		other.admits(run)
	}
	w.boss.live = onebyone.From(w.boss.live)
	w.boss.looksLong()
	other.asks(w.run("d"), false)
	w.boss.drifted("0 0 0")
}
