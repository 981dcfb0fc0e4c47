// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// quiet has a tenant use its slots and a key, and no more.
func quiet(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a := w.run("a", withKey("k"))
	w.boss.claims(a, nil)
	a = w.write(w.boss.admits(a), ended)
	w.boss.releases(a)
	must(t, w.boss.ReleaseKey(w.ctx(), a.UID, tenant, "k"))
	w.remove(a)
	w.boss.looks()
	return w
}

// entries is how many keys the register has.
func (w *world) entries() int {
	w.t.Helper()
	keys, err := w.boss.register(w.ctx())
	must(w.t, err)
	return len(keys)
}

// What ends by itself would be taken for lost: all runs were listed live, and marked.
//
// mutations: settle without retire, a retire at once, and one that forgets since when a key holds
// nothing, make this fail.
func TestWhatIsNotUsedLeavesTheRegisterWithoutAList(t *testing.T) {
	w := quiet(t)
	lists, rebuilds := w.boss.calls.of("list"), testutil.ToFloat64(w.boss.metrics.rebuilds.WithLabelValues(outcomeDone))
	w.clock.Step(unusedTime - time.Second)
	w.boss.looks()
	if n := w.entries(); n != 2 {
		t.Fatalf("%d keys are in the register before their time", n)
	}
	w.clock.Step(time.Second)
	w.boss.looks()
	if n := w.entries(); n != 0 {
		t.Fatalf("%d keys are in the register", n)
	}
	if n := w.redis.Exists(w.ctx(), slotsKey, claimsKey).Val(); n != 0 {
		t.Errorf("%d keys are in Redis", n)
	}
	b, c := w.run("b", withKey("k")), w.run("c")
	other := w.instance()
	other.claims(b, nil)
	other.admits(b)
	other.asks(c, false)
	w.boss.looks()
	if n := w.boss.calls.of("list") - lists; n != 0 {
		t.Errorf("%d live lists", n)
	}
	if n := testutil.ToFloat64(w.boss.metrics.rebuilds.WithLabelValues(outcomeDone)) - rebuilds; n != 0 {
		t.Errorf("%v rebuilds are counted", n)
	}
}

// mutations: retire.lua that does not count fields, or does not look at the other keys, makes this
// fail, as does an empty without reservations, or claims, where the script is let go on.
func TestWhatIsUsedStaysInTheRegister(t *testing.T) {
	for name, use := range map[string]func(w *world){
		"a run is in":               func(w *world) { w.boss.asks(w.run("in"), true) },
		"a run waits":               func(w *world) { w.policy("batch", 0); w.boss.asks(w.run("waits"), false) },
		"a slot is reserved":        func(w *world) { w.reserves(time.Hour) },
		"an idempotency key is had": func(w *world) { w.boss.claims(w.run("has", withKey("k2")), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t)
			w.clock.Step(unusedTime - time.Second)
			use(w)
			w.boss.looks()
			w.clock.Step(time.Second)
			w.boss.looks()
			if n := w.entries(); n != 1 {
				t.Errorf("%d keys are in the register, want the one in use", n)
			}
			at := store.Key{Policy: "batch", Tenant: tenant}
			if name == "an idempotency key is had" {
				at.Policy = ""
			}
			if ended, err := store.Retire(w.ctx(), w.boss.quota.Store, at); ended || err != nil {
				t.Errorf("retired: %t, %v", ended, err)
			}
		})
	}
}

// A pool stays while its policy is there: only the leader could open it again, by a list.
//
// mutations: unused that skips all pools, or none, makes this fail.
func TestThePoolOfAPolicyThatIsDeletedLeavesTheRegister(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 5)
	w.shared(2)
	w.boss.looks()
	a := w.boss.admitsOf(w.of("acme", "a"))
	must(t, w.boss.Release(w.ctx(), w.write(a, ended).UID, "acme", "batch"))
	later := func(want int, when string) {
		t.Helper()
		w.boss.looks()
		w.clock.Step(unusedTime)
		w.boss.looks()
		if n := w.entries(); n != want {
			t.Fatalf("%s: %d keys are in the register, want %d", when, n, want)
		}
	}
	later(1, "the policy is there")
	must(t, w.client.Delete(w.ctx(), &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}))
	w.boss.looks()
	if n := w.entries(); n != 1 {
		t.Fatalf("%d keys are in the register just after the policy was deleted", n)
	}
	later(0, "the policy is gone")
	if n := w.redis.Exists(w.ctx(), "{adm:batch:*}:slots").Val(); n != 0 {
		t.Error("the pool is in Redis")
	}

	w.policy("batch", 5) // and comes back
	w.shared(3)
	w.shared(1) // a later version of the limits, also if the policy before was created in the same second
	w.boss.looks()
	w.boss.asksOf(w.of("acme", "b"), true)
	w.boss.asksOf(w.of("beta", "c"), false)
}

func (w *world) reserves(ttl time.Duration) {
	w.t.Helper()
	a, err := w.boss.Reserve(w.ctx(), w.run("reserved"), tenant, w.effective("batch"), ttl)
	if err != nil || !a.Admitted {
		w.t.Fatalf("reserve: %+v, %v", a, err)
	}
}

// Somebody comes before each call to Redis of a resync that retires, and the resync may end there.
//
// mutation: retire that strikes before the data ended makes this fail: a run is let in by data that
// is in no register, and when that is lost it is taken for what was never used.
func TestARetirementMayBeInterruptedAnywhere(t *testing.T) {
	for name, dies := range map[string]bool{"and goes on": false, "and ends there": true} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				w := quiet(t)
				w.clock.Step(unusedTime)
				other := w.instance()
				w.run("b")
				var calls atomic.Int64 // several are under way at a time
				w.boss.beforeR = func() {
					if calls.Add(1) != int64(n) {
						return
					}
					other.tries("b")
					if dies {
						w.boss.mu.Lock()
						defer w.boss.mu.Unlock()
						w.boss.refuse = errors.New("test: it died")
					}
				}
				_, err := w.boss.resync(w.ctx())
				w.boss.beforeR, w.boss.refuse = nil, nil
				if calls.Load() < int64(n) {
					must(t, err)
					return
				}
				must(t, w.redis.Del(w.ctx(), slotsKey).Err()) // whoever is in is known by the register
				w.run("c")
				for range 2 {
					w.instance().tries("c")
					other.tries("b")
					w.boss.looks()
				}
				w.atMost(1)
				if !factOf(w.get("b")).admitted() && !factOf(w.get("c")).admitted() {
					t.Errorf("call %d: nobody is let in", n)
				}
			}
		})
	}
}
