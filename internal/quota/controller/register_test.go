// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	slotsKey    = "{adm:batch:acme}:slots"
	claimsKey   = "{admkeys:acme}:keys"
	registerKey = "{admkeys:-}:keys"
)

func TestEntriesOfTheRegister(t *testing.T) {
	for entry, at := range map[string]store.Key{
		"batch/acme": {Policy: "batch", Tenant: "acme"},
		"/acme":      {Tenant: "acme"},
		"a.b/x-y":    {Policy: "a.b", Tenant: "x-y"},
	} {
		back, ok := keyOfEntry(entry)
		if diff := cmp.Diff(at, back); diff != "" || !ok || entryOf(at) != entry {
			t.Errorf("%q: %t, %q, %s", entry, ok, entryOf(at), diff)
		}
	}
	if at, ok := keyOfEntry(selfEntry); ok {
		t.Errorf("the register's own entry is taken for %+v", at)
	}
}

// mutation: open that does nothing makes this fail.
// mutation: open that finishes without asking the register makes the tests of lost data fail.
func TestManyOpenAQuotaThatWasNeverUsed(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 2)
	w.boss.looks()
	others := []*instance{w.boss, w.instance(), w.instance()}
	var all []*v1alpha1.WorkflowRun
	for i := range 30 {
		all = append(all, w.run("r"+string(rune('a'+i%26))+string(rune('a'+i/26))))
	}
	p := w.effective("batch")
	var admitted atomic.Int64
	var asking sync.WaitGroup
	for i, run := range all {
		asking.Go(func() {
			a, err := others[i%len(others)].Admit(w.ctx(), run, tenant, p)
			if err != nil {
				t.Errorf("admit %s: %v", run.Name, err)
			}
			if a.Admitted {
				admitted.Add(1)
			}
		})
	}
	asking.Wait()
	if admitted.Load() != 2 {
		t.Errorf("%d admitted, want 2", admitted.Load())
	}
	if w.boss.calls.of("patch") != 0 || len(w.boss.kicks.Asked()) != 0 {
		t.Error("a gate that was never used was taken for a lost one")
	}
}

// A run may name any tenant. Where the namespace may not, it ends before it asks for anything, and
// what ends gives up all that it could have.
//
// mutation: Release, or ReleaseKey, that opens what was never used makes this fail.
func TestWhoHadNothingOpensNothingWhenItEnds(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.admits(w.run("a", withKey("k")))
	before, err := w.redis.Keys(w.ctx(), "*").Result()
	must(t, err)
	entries, err := w.boss.register(w.ctx())
	must(t, err)
	for i := range 100 {
		uid, theirs := types.UID(fmt.Sprint("uid-", i)), fmt.Sprint("x-", i)
		must(t, w.boss.Release(w.ctx(), uid, theirs, "batch"))
		must(t, w.boss.ReleaseKey(w.ctx(), uid, theirs, "k"))
	}
	after, err := w.redis.Keys(w.ctx(), "*").Result()
	must(t, err)
	now, err := w.boss.register(w.ctx())
	must(t, err)
	if len(now) != len(entries) || len(after) != len(before) || len(w.boss.kicks.Asked()) != 0 {
		t.Errorf("%d entries in the register, and %d keys in Redis; before: %d and %d; resyncs asked for: %d",
			len(now), len(after), len(entries), len(before), len(w.boss.kicks.Asked()))
	}
}

// mutation: Release, or ReleaseKey, that takes all that is closed for never used makes this fail.
func TestWhoFindsLostWhatItGivesUpHasItRebuilt(t *testing.T) {
	for name, lose := range map[string][]string{"slots": {slotsKey}, "keys": {claimsKey}, "all of them": {slotsKey, claimsKey, registerKey}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			a := w.run("a", withKey("k"))
			w.boss.claims(a, nil)
			w.boss.admits(a)
			must(t, w.redis.Del(w.ctx(), lose...).Err())
			w.boss.releases(a)
			must(t, w.boss.ReleaseKey(w.ctx(), a.UID, tenant, "k"))
			if len(w.boss.kicks.Asked()) == 0 || !w.instance().quota.wanted(w.ctx()) {
				t.Error("no resync is asked for")
			}
		})
	}
}

// Whoever opens a quota may be stopped, or Redis may lose its data, between any two of his calls. f
// happens once, before call n.
// mutation: open that enters the key into the register before begin, with a token of its own, makes
// this fail: two are in.
func TestAnOpeningMayBeInterruptedAnywhere(t *testing.T) {
	for name, rival := range map[string]func(w *world, other *instance){
		"another opens the gate at the same time": func(w *world, other *instance) {
			other.tries(w.run("rival").Name)
		},
		"all data is lost, is rebuilt, and another opens the gate": func(w *world, other *instance) {
			w.server.FlushAll()
			other.looks()
			other.tries(w.run("rival").Name)
		},
		"all data is lost twice, and another is let in in between": func(w *world, other *instance) {
			w.server.FlushAll()
			other.looks()
			other.tries(w.run("rival").Name)
			w.server.FlushAll()
		},
		"all data is lost and only a rebuild has begun": func(w *world, other *instance) {
			w.server.FlushAll()
			if _, err := other.quota.BeginRebuildKeys(w.ctx(), registerTenant); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				w := newWorld(t)
				w.policy("batch", 1)
				w.boss.looks()
				slow, other := w.instance(), w.instance()
				run, calls := w.run("slow"), 0
				slow.beforeR = func() {
					if calls++; calls == n {
						rival(w, other)
					}
				}
				slow.tries(run.Name)
				slow.tries(run.Name) // the write may have been refused
				slow.beforeR = nil
				w.boss.looks()
				w.atMost(1)
				if calls < n {
					return
				}
			}
		})
	}
}

// mutation: openedIfNew in inspect replaced by the plain call makes this fail: a quota that is
// about to be opened is taken for lost.
func TestAnOpeningThatACrashLeftHalfDone(t *testing.T) {
	for name, next := range map[string]func(w *world){
		"the next who comes takes it up": func(w *world) { w.boss.asks(w.run("a"), true) },
		"the next round takes it up":     func(w *world) { w.boss.looks() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			at := store.Key{Policy: "batch", Tenant: tenant}
			token, err := w.boss.begin(w.ctx(), at)
			must(t, err)
			_, err = w.boss.quota.ClaimKey(w.ctx(), registerTenant, entryOf(at), store.Claim{UID: token})
			must(t, err)
			w.run("waiting")
			next(w)
			if n := w.boss.calls.of("patch"); n != 0 {
				t.Errorf("%d runs were marked, as if data had been lost", n)
			}
			if _, err := w.boss.quota.Snapshot(w.ctx(), at); err != nil {
				t.Errorf("the gate is not open: %v", err)
			}
		})
	}
}

// The register is lost alone, as with one shard of a Redis Cluster, and no run is admitted: it is
// rebuilt without the tenant, whose slots are elsewhere, and open still. Whoever comes is let in by
// those, and opens nothing.
//
// mutations: settle without adopt makes this fail: the slot of a run that is gone stands for ever.
// So does adopt that enters nothing: when the slots are lost, too, they are taken for new.
func TestAKeyThatIsOpenIsEnteredAgainAfterTheRegisterWasLost(t *testing.T) {
	for name, keep := range map[string]bool{"a run that ended tells of it": true, "only a run that waits tells of it": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			a := w.write(w.boss.admits(w.run("a")), ended)
			w.boss.releases(a)
			if !keep {
				w.remove(a)
			}
			must(t, w.redis.Del(w.ctx(), registerKey).Err())
			w.boss.looks()
			w.remove(w.instance().admits(w.run("b"))) // and its operator died
			c := w.run("c")
			w.boss.looksLong()
			c = w.boss.admits(c)

			must(t, w.redis.Del(w.ctx(), slotsKey).Err())
			d := w.run("d")
			w.boss.isClosed(d)
			w.boss.looks()
			w.holds(runs(c), nil)
			w.boss.asks(w.get(d.Name), false)
		})
	}
}

// The same of idempotency keys.
//
// mutation: keysWithout that looks for slots only makes this fail: two runs have the key.
func TestIdempotencyKeysThatAreOpenAreEnteredAgainAfterTheRegisterWasLost(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 5)
	w.boss.looks()
	gone := w.run("gone", withKey("k1"))
	w.boss.claims(gone, nil)
	w.remove(gone)
	waits := w.run("waits", withKey("k2"))
	must(t, w.redis.Del(w.ctx(), registerKey).Err())
	w.boss.looksLong()
	owners, err := w.boss.quota.Claims(w.ctx(), tenant)
	if err != nil || len(owners) != 0 {
		t.Fatalf("%v, %v; want the key of the run that is gone released", owners, err)
	}
	waits = w.get(waits.Name) // it was marked
	w.boss.claims(waits, nil)
	w.boss.admits(waits)
	must(t, w.redis.Del(w.ctx(), claimsKey).Err())
	late := w.run("late", withKey("k2"))
	if _, err := w.boss.Claim(w.ctx(), late, tenant); !isClosed(err) {
		t.Fatalf("claim: %v; want closed", err)
	}
	w.boss.looks()
	w.boss.claims(w.get(late.Name), &Owner{Name: "default/waits", Same: true})
}

// One call to Redis of a rebuild of one key fails, each in turn, and then the data is lost again.
//
// mutation: finishAll that strikes the key and enters it anew, in two calls, makes this fail: the
// key is open and not in the register, and is taken for one that was never used.
func TestAKeyStaysInTheRegisterWhereverItsRebuildFails(t *testing.T) {
	for n := 1; ; n++ {
		w := newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		a := w.boss.admits(w.run("a"))
		must(t, w.redis.Del(w.ctx(), slotsKey).Err())
		calls := 0
		w.boss.beforeR = func() {
			w.boss.refuse = nil
			if calls++; calls == n {
				w.boss.refuse = errors.New("test: no answer")
			}
		}
		_, err := w.boss.resync(w.ctx())
		w.boss.beforeR, w.boss.refuse = nil, nil
		if calls < n {
			must(t, err)
			return
		}
		must(t, w.redis.Del(w.ctx(), slotsKey).Err())
		w.boss.isClosed(w.run("b"))
		w.boss.looks()
		w.holds(runs(a), nil)
	}
}

// Somebody asks before each call to Redis of a rebuild of one key.
//
// mutation: finishAll that enters the token of the rebuild makes this fail: whoever comes takes the
// key for one that is being opened for the first time, with nobody in.
func TestNobodyOpensAKeyThatIsBeingRebuilt(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.admits(w.run("a"))
	w.run("late")
	must(t, w.redis.Del(w.ctx(), slotsKey).Err())
	other := w.instance()
	w.boss.beforeR = func() { other.tries("late") }
	w.boss.looks()
	w.boss.beforeR = nil
	w.atMost(1)
}

// mutations: a Start that does not look while it rests makes this fail; a look that does not see a
// wish, or nobody who wishes, the second case; a wish that stays, the end of it.
func TestTheLeaderLearnsWithinSecondsWhatOthersFindLost(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"all data":              func(w *world) { w.server.FlushAll() },
		"only the gate's own":   func(w *world) { must(w.t, w.redis.Del(w.ctx(), slotsKey).Err()) },
		"only the keys' own":    func(w *world) { must(w.t, w.redis.Del(w.ctx(), claimsKey).Err()) },
		"the register's, alone": func(w *world) { must(w.t, w.redis.Del(w.ctx(), registerKey).Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			running, other := w.start(w.boss), w.instance()
			a := w.run("a", withKey("k"))
			w.boss.claims(a, nil)
			a = w.boss.admits(a)
			b := w.run("b", withKey("k2"))
			lose(w)
			_, claim := other.Claim(w.ctx(), b, tenant)
			_, admit := other.Admit(w.ctx(), b, tenant, w.effective("batch"))
			if err := errors.Join(claim, admit); err != nil && !isClosed(err) {
				t.Fatal(err)
			}
			running.resyncs(func() { w.clock.Step(resyncs.LookPause) })
			b = w.get(b.Name)
			other.claims(b, nil)
			other.asks(b, false)
			w.holds(runs(a), runs(b))
			running.rests(func() { w.clock.Step(resyncs.LookPause) })
		})
	}
}
