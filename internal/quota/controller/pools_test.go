// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// shared gives policy batch a total, or takes it away.
func (w *world) shared(total int32, tenants ...v1alpha1.TenantLimit) {
	w.t.Helper()
	p := &v1alpha1.LockPolicy{}
	must(w.t, w.client.Get(w.ctx(), client.ObjectKey{Name: "batch"}, p))
	p.Spec.Admission.Total, p.Spec.Admission.Tenants = nil, tenants
	if total > 0 {
		p.Spec.Admission.Total = &v1alpha1.AdmissionTotal{MaxConcurrentRuns: total}
	}
	must(w.t, w.client.Update(w.ctx(), p))
}

// of makes a run of a tenant.
func (w *world) of(tenant, name string) *v1alpha1.WorkflowRun {
	w.t.Helper()
	return w.write(w.create(name), func(st *v1alpha1.WorkflowRunStatus) { st.Tenant = tenant })
}

func (k *instance) asksOf(run *v1alpha1.WorkflowRun, want bool) {
	k.w.t.Helper()
	a, err := k.Admit(k.w.ctx(), run, run.Status.Tenant, k.w.effective("batch"))
	if err != nil || a.Admitted != want {
		k.w.t.Fatalf("admit %s: %+v, %v; want admitted: %t", run.Name, a, err, want)
	}
}

func (k *instance) admitsOf(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	k.w.t.Helper()
	k.asksOf(run, true)
	of := run.Status.Tenant
	return k.w.write(run, func(st *v1alpha1.WorkflowRunStatus) { admittedUnder("batch")(st); st.Tenant = of })
}

// counted fails the test unless these are in the pool, in whatever order.
func (w *world) counted(want map[string]string) {
	w.t.Helper()
	b, err := w.boss.quota.Snapshot(w.ctx(), store.PoolOf("batch"))
	must(w.t, err)
	got := map[string]string{}
	for _, s := range b.Slots {
		got[s.UID] = s.Tenant
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		w.t.Fatalf("slots of the pool (-want +got):\n%s", diff)
	}
}

// The end of a run of one tenant wakes a run of another, which has its slot then.
//
// mutation: repair without giveAll makes this fail.
func TestTenantsShareATotal(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 5)
	w.shared(2, v1alpha1.TenantLimit{Name: "beta", MaxConcurrentRuns: 2, Guaranteed: 1})
	w.boss.looks()
	a1, a2 := w.boss.admitsOf(w.of("acme", "a1")), w.boss.admitsOf(w.of("acme", "a2"))
	a3, b1 := w.of("acme", "a3"), w.of("beta", "b1")
	w.instance().asksOf(a3, false)
	w.instance().asksOf(b1, false)
	w.boss.woke()

	must(t, w.boss.Release(w.ctx(), w.write(a1, ended).UID, "acme", "batch"))
	w.boss.wakes("b1") // a3 is older, but beta has less than it is guaranteed
	b1 = w.boss.admitsOf(b1)
	w.counted(map[string]string{string(a2.UID): "acme", string(b1.UID): "beta"})

	// A process that dies after the end was written frees nothing: the resync does.
	w.write(a2, ended)
	w.boss.looks()
	if woke := w.boss.woke(); len(woke) != 1 || woke[0] != "a3" {
		t.Fatalf("woken: %v", woke)
	}
	w.boss.asksOf(a3, true)

	w.boss.asksOf(w.of("acme", "a4"), false)
	w.shared(4)
	w.boss.woke()
	w.boss.looks() // as after PolicyChanged
	if woke := w.boss.woke(); !slices.Contains(woke, "a4") {
		t.Fatalf("the total was raised, and woken: %v", woke)
	}
}

// A policy gets a total while runs are under way, loses it, and Redis is flushed in between: the
// runs are counted each time, and no process that has not heard of it lets anybody in beside them.
//
// mutation: movesOf that finds none, shut that closes nothing, open without inPool, or dissolve
// that does nothing makes this fail.
func TestATotalComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 2)
	w.boss.looks()
	before := w.effective("batch")
	a1, a2 := w.boss.admitsOf(w.of("acme", "a1")), w.boss.admitsOf(w.of("acme", "a2"))
	b1, late := w.of("beta", "b1"), w.of("gamma", "late")
	in := map[string]string{string(a1.UID): "acme", string(a2.UID): "acme"}

	w.shared(2)
	w.boss.looks()
	w.counted(in)
	w.boss.asksOf(b1, false)
	for _, run := range runs(b1, late) { // by a process whose cache is old: beta and gamma were never counted apart
		if a, err := w.boss.Admit(w.ctx(), run, run.Status.Tenant, before); !isClosed(err) {
			t.Fatalf("admitted beside the pool: %+v, %v", a, err)
		}
	}

	must(t, w.redis.FlushAll(w.ctx()).Err())
	w.boss.looks()
	w.counted(in)
	w.boss.asksOf(w.get("b1"), false)

	after := w.effective("batch")
	w.shared(0)
	w.boss.looks()
	w.boss.asksOf(w.of("acme", "a3"), false)
	w.boss.asksOf(w.get("b1"), true)
	w.boss.asksOf(w.get("late"), true)
	if a, err := w.boss.Admit(w.ctx(), w.of("acme", "a4"), "acme", after); !isClosed(err) {
		t.Fatalf("admitted by a pool that is gone: %+v, %v", a, err)
	}
}

// A run that was let in by the pool and whose slot is lost gets it again; one that was deleted
// while it had a slot, and nobody said so, loses it.
func TestAPoolIsRepaired(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 5)
	w.shared(2)
	w.boss.looks()
	a := w.boss.admitsOf(w.of("acme", "a"))
	gone := w.of("beta", "gone")
	w.boss.asksOf(gone, true)
	_, err := w.boss.quota.Release(w.ctx(), store.PoolOf("batch"), store.Limits{}, string(a.UID))
	must(t, err)
	w.remove(gone)
	w.boss.looksLong()
	w.counted(map[string]string{string(a.UID): "acme"})
	w.boss.drifted("1 1 0")

	must(t, w.client.Delete(w.ctx(), &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}))
	must(t, w.boss.Release(w.ctx(), w.write(a, ended).UID, "acme", "batch"))
	w.boss.looks() // the policy is gone: the resync frees it
	w.counted(map[string]string{})
}

// A leader dies after each single call to Redis of a move, and another process still has the policy
// of before.
//
// mutation: closing that goes by what this move gathers only, and not by pools that are closed,
// makes this fail.
func TestAMoveThatIsCutOffIsMadeByTheNextResync(t *testing.T) {
	for n := int32(1); ; n++ {
		w := newWorld(t)
		w.policy("batch", 2)
		w.boss.looks()
		before := w.effective("batch")
		a1 := w.boss.admitsOf(w.of("acme", "a1"))
		w.shared(1)

		ctx, die := context.WithCancel(w.ctx())
		var calls atomic.Int32
		w.boss.beforeR = func() {
			if calls.Add(1) == n {
				die()
			}
		}
		_, err := w.boss.resync(ctx)
		w.boss.beforeR = nil
		w.boss.looks()
		w.counted(map[string]string{string(a1.UID): "acme"})
		if a, _ := w.instance().Admit(w.ctx(), w.of("acme", "late"), "acme", before); a.Admitted {
			t.Fatalf("cut off after call %d: the slots of the tenant were not shut: %+v", n, a)
		}
		die()
		if err == nil {
			return
		}
	}
}

// Somebody begins to open the slots of a tenant after the leader has read the register, sees no
// pool there, and goes on when the move is made.
//
// mutation: closing that goes by the register as it was before gather makes this fail.
func TestSlotsThatAreOpenedDuringAMoveAreShut(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 2)
	w.boss.looks()
	before := w.effective("batch")
	slow, late := w.instance(), w.of("acme", "late")
	slow.admitsOf(w.of("beta", "b")) // its connection is there, and Redis knows all scripts
	w.shared(1)
	paused, moved, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	const finish = 5 // after the question, begin, the entry, and the look for a pool
	var opens, calls atomic.Int32
	slow.beforeR = func() {
		if opens.Add(1) == finish {
			close(paused)
			<-moved
		}
	}
	var got store.Answer
	w.boss.beforeR = func() {
		if calls.Add(1) != 2 { // the first read the register
			return
		}
		go func() {
			defer close(over)
			got, _ = slow.Admit(w.ctx(), late, "acme", before)
		}()
		<-paused
	}
	w.boss.looks()
	close(moved)
	<-over
	if got.Admitted {
		t.Fatalf("the slots of the tenant were opened beside the pool: %+v", got)
	}
}

// mutation: giveAll that asks once makes this fail: 256 are let in.
func TestARaisedTotalLetsAllInAtOnce(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1000)
	w.shared(1)
	w.boss.looks()
	const waiting = 600
	var cache snapshot
	for i := range waiting {
		run := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("run-%03d", i), Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%03d", i)),
		}}
		run.Spec.WorkloadClass, run.Status = "batch", &v1alpha1.WorkflowRunStatus{Tenant: "acme"}
		cache.runs.Items = append(cache.runs.Items, run)
		w.boss.asksOf(&run, i == 0)
	}
	w.boss.stale = cache
	w.shared(1000)
	w.boss.woke()
	w.boss.looks()
	b, err := w.boss.quota.Snapshot(w.ctx(), store.PoolOf("batch"))
	must(t, err)
	if woken := len(w.boss.woke()); len(b.Slots) != waiting || woken < waiting-1 {
		t.Fatalf("%d of %d have slots, %d were woken", len(b.Slots), waiting, woken)
	}
}
