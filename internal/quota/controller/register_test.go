// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
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
	if w.boss.calls.of("patch") != 0 || len(w.boss.kicked) != 0 {
		t.Error("a gate that was never used was taken for a lost one")
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
