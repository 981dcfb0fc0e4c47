// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv/onebyone"
)

// atMost fails the test if more runs are admitted and not over than that, or one of them
// has no slot.
func (w *world) atMost(limit int) {
	w.t.Helper()
	var list v1alpha1.WorkflowRunList
	must(w.t, w.client.List(w.ctx(), &list))
	at := store.Key{Policy: "batch", Tenant: tenant}
	slots := map[string]bool{}
	b, err := w.boss.quota.Snapshot(w.ctx(), at)
	if err != nil && !isClosed(err) {
		w.t.Fatal(err)
	}
	for _, s := range b.Slots {
		slots[s.UID] = true
	}
	in := 0
	for i := range list.Items {
		if run := factOf(&list.Items[i]); run.under(at) {
			in++
			if !slots[string(run.uid)] {
				w.t.Fatalf("run %s is admitted and has no slot", run.name)
			}
		}
	}
	if in > limit {
		w.t.Fatalf("%d runs are admitted, the limit is %d", in, limit)
	}
}

// mutation: a rebuild that finishes with no slots makes this fail.
// mutation: openedIfNew that opens whatever is closed makes this fail: b is let in at once.
func TestAfterALossNobodyIsLetInUntilTheRunsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 2)
	w.boss.looks()
	over, a := w.boss.admits(w.run("over")), w.boss.admits(w.run("a"))
	b, c := w.run("b"), w.run("c")
	w.boss.asks(b, false)
	over = w.write(over, ended) // and nobody left before the loss
	w.server.FlushAll()

	other := w.instance()
	for _, k := range []*instance{w.boss, other} {
		k.isClosed(b)
		if len(k.kicks.Asked()) != 1 {
			t.Error("no round was asked for")
		}
	}
	w.boss.rebuilds()
	w.holds(runs(a), nil)
	w.boss.woke()
	w.boss.looks()
	w.boss.wakes("b", "c")
	w.holds(runs(a), nil)
	other.asks(w.get("c"), true)
	w.boss.asks(w.get("b"), false)
	w.boss.drifted("0 0 0")
	if n := testutil.ToFloat64(w.boss.metrics.rebuilds.WithLabelValues(outcomeDone)); n != 2 { // the first was for the empty Redis
		t.Errorf("%v rebuilds were counted, want 2", n)
	}
	_, _ = over, c
}

// A process was granted a slot and is paused before it writes. Redis loses its data; the leader
// rebuilds; others are let in.
// mutation: count without touch makes this fail: the write is accepted, and two are in; so does a
// mark that is always the same.
func TestAGrantOfBeforeTheLossCannotBeWritten(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"all data":            func(w *world) { w.server.FlushAll() },
		"only the gate's own": func(w *world) { must(w.t, w.redis.Del(w.ctx(), slotsKey).Err()) },
		"Redis starts anew":   func(w *world) { w.server.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			paused, slow := w.instance(), w.run("slow")
			for i := range 2 { // each time anew
				paused.asks(slow, true)
				lose(w)
				quick := w.run(fmt.Sprint("quick-", i))
				w.boss.isClosed(quick)
				w.boss.looks()
				quick = w.boss.admits(w.get(quick.Name))
				if _, err := w.tryWrite(slow, admittedUnder("batch")); !apierrors.IsConflict(err) {
					t.Fatalf("the grant of before the loss was written: %v", err)
				}
				slow = w.get(slow.Name)
				paused.asks(slow, false)
				w.atMost(1)
				w.boss.releases(w.write(quick, ended))
			}
		})
	}
}

// mutation: touch that drops the answers of the marks makes this fail.
// mutation: count without beginNew makes the case of the unknown policy fail.
func TestAWriteThatIsJustInTimeIsCounted(t *testing.T) {
	for name, policyName := range map[string]string{"under the policy of others": "batch", "under a policy that no listed run has": "other"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.policy("other", 1)
			w.boss.looks()
			slow, late := w.run("slow"), w.run("late")
			p := w.effective(policyName)
			if a, err := w.instance().Admit(w.ctx(), slow, tenant, p); !a.Admitted || err != nil {
				t.Fatalf("admit: %+v, %v", a, err)
			}
			w.server.FlushAll()
			var once sync.Once
			w.boss.beforeA = func(op string) {
				if op == "patch" { // so after the list
					once.Do(func() { w.write(slow, admittedUnder(policyName)) })
				}
			}
			w.boss.rebuilds()
			if a, err := w.boss.Admit(w.ctx(), w.get(late.Name), tenant, p); a.Admitted || err != nil || a.Used != 1 {
				t.Fatalf("admit: %+v, %v; want the run to be counted", a, err)
			}
		})
	}
}

// mutation: count without beginNew makes this fail: the quota of a run that only the live list has
// is opened by the next who comes, with nobody in.
func TestARunThatOnlyTheLiveListHasIsCounted(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.freeze()
	w.boss.looks()
	a := w.instance().admits(w.run("a"))
	w.server.FlushAll()
	w.boss.rebuilds()
	w.instance().asks(w.run("b"), false)
	w.holds(runs(a), runs(w.get("b")))
}

// Something happens before each single call to Redis or to the API server of a rebuild, in turn.
// One run was admitted before, another was granted a slot and is not written yet; two more ask all
// the time, and when all is over even more.
// mutation: enter before finishAll makes this fail, as does count that does not list
// again after beginNew.
func TestDataMayBeLostAgainAnywhereInARebuild(t *testing.T) {
	for name, happens := range map[string]func(w *world, other *instance){
		"all data is lost again": func(w *world, _ *instance) { w.server.FlushAll() },
		"another leader rebuilds, lets a run in, and all data is lost again": func(w *world, other *instance) {
			w.server.FlushAll()
			other.looks()
			other.tries(w.run("rival").Name)
			w.server.FlushAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				if !lostAgain(t, n, happens) {
					return
				}
			}
		})
	}
}

// lostAgain has it happen before call n of a rebuild; false if there are not so many.
func lostAgain(t *testing.T, n int, happens func(*world, *instance)) bool {
	t.Helper()
	w := newWorld(t)
	w.policy("batch", 2)
	w.boss.looks()
	w.boss.freeze() // which quotas are in use it finds out from the live list
	w.instance().admits(w.run("a"))
	paused, other, greedy := w.instance(), w.instance(), w.instance()
	slow, third, fourth := w.run("slow"), w.run("third"), w.run("fourth")
	paused.asks(slow, true)
	w.server.FlushAll()

	p := w.effective("batch")
	var mu sync.Mutex
	calls := 0
	granted := map[string]*v1alpha1.WorkflowRun{}
	step := func() {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls == n {
			happens(w, other)
		}
		for _, name := range []string{third.Name, fourth.Name} {
			run := w.get(name)
			if got, err := greedy.Admit(w.ctx(), run, tenant, p); err == nil && got.Admitted {
				granted[run.ResourceVersion] = run
			}
		}
	}
	w.boss.beforeR, w.boss.beforeA = step, func(string) { step() }
	_, err := w.boss.resync(w.ctx())
	w.boss.beforeR, w.boss.beforeA, w.boss.stale = nil, nil, nil
	if err != nil && !isClosed(err) && !errors.Is(err, store.ErrRebuildLost) && !errors.Is(err, errRestless) {
		t.Fatalf("round, disturbed before call %d: %v", n, err)
	}
	_, _ = w.tryWrite(slow, admittedUnder("batch"))
	for _, run := range granted {
		_, _ = w.tryWrite(run, admittedUnder("batch"))
	}
	for i := range 2 { // whoever was refused asks anew, and others come
		for _, name := range []string{third.Name, fourth.Name, slow.Name, w.run(fmt.Sprint("more-", i)).Name} {
			greedy.tries(name)
		}
		w.boss.looks()
	}
	w.atMost(2)
	return calls >= n
}

// annotated leaves a run no room for another annotation.
func (w *world) annotated(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run.Annotations = map[string]string{"x": strings.Repeat("x", 256<<10-1)}
	must(w.t, w.client.Update(w.ctx(), run))
	return run
}

// Anybody who may create a run may make one whose annotations have no room, and leave it suspended.
//
// mutation: a mark that only annotates makes this fail: no tenant's slots are ever opened again.
func TestARunThatCannotBeAnnotatedHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.annotated(w.create("new", suspended))
	slow := w.annotated(w.run("slow"))
	paused := w.instance()
	paused.asks(slow, true)
	w.server.FlushAll()
	w.boss.looks()
	w.boss.admits(w.run("quick"))
	if _, err := w.tryWrite(slow, admittedUnder("batch")); !apierrors.IsConflict(err) {
		t.Errorf("the grant of before the loss was written: %v", err)
	}
	w.atMost(1)
}

// mutation: mark that takes any conflict for another run makes the busy case fail: the grant is
// written after all.
func TestMarkingRunsThatChange(t *testing.T) {
	for name, change := range map[string]func(w *world, run *v1alpha1.WorkflowRun){
		"it is deleted": func(w *world, run *v1alpha1.WorkflowRun) { w.remove(run) },
		"another run has its name": func(w *world, run *v1alpha1.WorkflowRun) {
			w.remove(run)
			w.run(run.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			run := w.run("a")
			change(w, run)
			if now, err := w.boss.mark(w.ctx(), factOf(run), "m"); now != nil || err != nil {
				t.Errorf("%+v, %v; want that it is gone", now, err)
			}
		})
	}
	t.Run("others write it all the time", func(t *testing.T) {
		w := newWorld(t)
		run := w.run("a")
		conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "a", errors.New("test"))
		w.boss.refusePatch = []error{conflict, conflict}
		now, err := w.boss.mark(w.ctx(), factOf(run), "m")
		if err != nil || now == nil || w.get("a").Annotations[annotationRebuilt] != "m" {
			t.Errorf("%+v, %v; want it marked at the third try", now, err)
		}
		w.boss.refusePatch = []error{conflict, conflict, conflict}
		if now, err := w.boss.mark(w.ctx(), factOf(run), "m2"); now != nil || !apierrors.IsConflict(err) {
			t.Errorf("%+v, %v; want the error", now, err)
		}
		forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "a", nil)
		w.boss.refusePatch = []error{forbidden, forbidden} // the label, too
		if _, err := w.boss.mark(w.ctx(), factOf(run), "m3"); !apierrors.IsForbidden(err) {
			t.Errorf("%v; want the error", err)
		}
	})
}

// mutation: a rebuild of one quota that marks all runs makes this fail.
func TestWhatOnlyOneQuotaLostConcernsNoOther(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a, b := w.boss.admits(w.run("a")), w.run("b")
	foreign := w.create("foreign")
	w.write(foreign, func(st *v1alpha1.WorkflowRunStatus) { st.Tenant = "else" })
	w.boss.asks(b, false)
	must(t, w.redis.Del(w.ctx(), slotsKey).Err())
	w.boss.isClosed(b)
	w.boss.looks()
	w.holds(runs(a), runs(b)) // its place was not lost
	if n := w.boss.calls.of("patch"); n != 1 {
		t.Errorf("%d runs were marked, want b alone", n)
	}
	if w.get("foreign").Annotations[annotationRebuilt] != "" {
		t.Error("the run of another tenant was marked")
	}
}

// mutation: finishAll that never strikes makes this fail, as does a strike before the list.
func TestAQuotaThatEndedByItselfIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a := w.boss.admits(w.run("a"))
	w.boss.releases(w.write(a, ended))
	must(t, w.redis.Del(w.ctx(), slotsKey).Err()) // 7 days later
	w.boss.looks()
	keys, err := w.boss.register(w.ctx())
	if err != nil || len(keys) != 0 {
		t.Fatalf("register: %v, %v; want it empty", keys, err)
	}
	b, c := w.run("b"), w.run("c")
	w.instance().admits(b) // no resync is needed
	w.boss.asks(c, false)
}

// A leader was paused right before it strikes a quota that nobody used; since then it is
// in use again.
// mutation: finishAll that does not enter the key anew makes this fail: the key is struck from the
// register, and is taken for one that was never used.
func TestAStrikeThatComesTooLateMisses(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a := w.boss.admits(w.run("a"))
	at := store.Key{Policy: "batch", Tenant: tenant}
	before, err := w.boss.register(w.ctx())
	must(t, err)
	must(t, w.redis.Del(w.ctx(), slotsKey).Err())
	w.boss.looks() // another leader's
	must(t, w.instance().strike(w.ctx(), at, before[at]))
	must(t, w.redis.Del(w.ctx(), slotsKey).Err())
	w.boss.isClosed(w.run("b"))
	w.boss.looks()
	w.holds(runs(a), nil)
}

// Redis was restarted and has its old data again, which may be behind: the epochs tell. What it has
// is kept until the resync has looked.
func TestAServerThatComesBackWithOldData(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a, b := w.boss.admits(w.run("a")), w.run("b")
	w.boss.asks(b, false)
	w.write(a, ended)
	for _, key := range []string{slotsKey, registerKey} {
		must(t, w.redis.HSet(w.ctx(), key, ":epoch", "1 0123456789012345678901234567890123456789").Err())
	}
	w.boss.isClosed(b)
	w.boss.looks()
	w.boss.looks() // the quota is open only now: no run that is counted has it
	w.holds(nil, runs(b))
	w.boss.wakes("b")
	w.boss.asks(w.get("b"), true)
}

// mutation: a rebuild whose list ends after its first page lets others in beside the runs of the
// next ones.
func TestARebuildCountsTheRunsOfAllPages(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 3)
	w.boss.looks()
	in := runs(w.boss.admits(w.run("a")), w.boss.admits(w.run("b")), w.boss.admits(w.run("c")))
	w.server.FlushAll()
	w.boss.live = onebyone.From(w.boss.live)
	w.boss.rebuilds()
	b, err := w.boss.quota.Snapshot(w.ctx(), store.Key{Policy: "batch", Tenant: tenant})
	must(t, err)
	if len(b.Slots) != len(in) {
		t.Errorf("%d slots are taken, want %d", len(b.Slots), len(in))
	}
}

// stepping lets the clock run while something waits by it, and returns its outcome.
func (w *world) stepping(do func() error) (err error) {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	w.until("it ends", func() bool {
		select {
		case err = <-done:
			return true
		default:
			if w.clock.HasWaiters() {
				w.clock.Step(100 * time.Millisecond)
			}
			return false
		}
	})
	return err
}

// A run that is deleted while it is marked, as a tenant may do with thousands, ended the rebuild
// for all: the watch does not know at once.
//
// mutations: a Marker without Doubts, or an unmarked that does not wait for them.
func TestARebuildGoesOnWhereARunIsDeletedMeanwhile(t *testing.T) {
	for name, frozen := range map[string]bool{"it is marked": false, "it may not be marked": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			gone, holder := w.write(w.run("gone"), func(st *v1alpha1.WorkflowRunStatus) { st.Tenant = tenant }), w.write(w.run("holder"), admittedUnder("batch"))
			w.server.FlushAll()
			w.boss.freeze()
			if frozen {
				w.boss.frozen = map[string]error{"gone": apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "gone", errors.New("test"))}
			}
			gets := 0
			w.boss.beforeA = func(op string) {
				switch {
				case op == "patch" && !frozen, op == "get" && frozen && gets == 1: // after Mark has seen that it is there
					w.remove(gone)
				}
				if op != "get" {
					return
				}
				if gets++; gets == 4 { // the watch tells of it
					w.boss.stale = nil
				}
			}
			must(t, w.stepping(func() error { _, err := w.boss.resync(w.ctx()); return err }))
			if gets < 4 {
				t.Errorf("it was read %d times", gets)
			}
			w.boss.beforeA = nil
			w.holds(runs(holder), nil)
		})
	}
}

// mutations: a restore, or a neverBorn, that ends at the first run that is doubted.
func TestARunThatIsDoubtedKeepsNothingFromOthers(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 3)
	w.boss.looks()
	first, there, last := w.write(w.run("a"), admittedUnder("batch")), w.write(w.run("b"), admittedUnder("batch")), w.write(w.run("c"), admittedUnder("batch"))
	w.boss.freeze()
	w.remove(first)
	w.remove(last)
	at := store.Key{Policy: "batch", Tenant: tenant}
	err := w.stepping(func() error { return w.boss.restore(w.ctx(), at, []fact{factOf(first), factOf(there), factOf(last)}) })
	if !errors.Is(err, resyncs.ErrDoubted) {
		t.Errorf("restore: %v; want a doubt", err)
	}
	w.holds(runs(there), nil)
	lapsed := map[types.UID]string{first.UID: "default/a", last.UID: "default/c"}
	for i := range 20 {
		lapsed[types.UID(fmt.Sprint("never-", i))] = fmt.Sprint("default/never-", i)
	}
	gone, err := neverBorn(w.ctx(), w.boss.Controller, lapsed)
	if len(gone) != 20 || !errors.Is(err, resyncs.ErrDoubted) {
		t.Errorf("%d are gone, %v; want 20, and a doubt", len(gone), err)
	}
}
