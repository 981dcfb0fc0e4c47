// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// newer is a write of a newer operator.
func newer(st *v1alpha1.WorkflowRunStatus) { st.MinWriterVersion = v1alpha1.WriterVersion + 1 }

// unwritten fails the test if a run was written.
func (w *world) unwritten(run *v1alpha1.WorkflowRun) {
	w.t.Helper()
	if n := w.boss.calls.of("patch"); n != 0 || w.get(run.Name).ResourceVersion != run.ResourceVersion {
		w.t.Errorf("it was written, with %d patches", n)
	}
}

// An operator that knows less writes nothing to a run. A newer one may have been granted a slot for
// it before the loss, and write that.
//
// mutations: markOrRead that marks it, or that does not count it as one that may not be marked.
func TestARebuildLeavesARunAloneThatNeedsANewerOperator(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	run := w.write(w.run("later"), newer)
	w.server.FlushAll()
	w.boss.looks()
	w.holds(runs(run), nil)
	for range 2 {
		w.looksAgain()
	}
	w.holds(runs(run), nil)
	w.unwritten(run)
	w.boss.asks(w.run("b"), false)
	w.boss.looks()
	w.boss.releases(w.write(w.write(run, admittedUnder("batch")), ended))
	w.boss.admits(w.get("b"))
}

// It became one between the list and the mark.
//
// mutation: markOrRead that takes what it reads after the mark for all that there is.
func TestARunThatNeedsANewerOperatorSinceTheListKeepsASlot(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	run := w.run("later")
	w.boss.beforeA = func(op string) {
		if op == "patch" {
			w.boss.beforeA = nil
			w.write(run, newer)
		}
	}
	w.server.FlushAll()
	w.boss.looks()
	w.holds(runs(run), nil)
}

// mutation: markOrRead that opens what nobody knows.
func TestARunOfNoTenantThatNeedsANewerOperatorKeepsAllShut(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.write(w.create("later"), newer)
	w.server.FlushAll()
	if _, err := w.boss.resync(w.ctx()); err == nil {
		t.Error("no error")
	}
	w.boss.isClosed(w.run("b"))
}

// Nobody waits behind such a run, and its slot stays taken.
//
// mutations: takeAll that marks it; slot of an audit that takes its slot for misplaced; leaveLine
// that takes a slot, too.
func TestARunThatNeedsANewerOperatorLeavesTheLineAndKeepsItsSlot(t *testing.T) {
	t.Run("in line", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		in, run, other := w.boss.admits(w.run("in")), w.run("later"), w.run("other")
		w.boss.asks(run, false)
		w.boss.asks(other, false)
		run = w.write(run, newer)
		w.boss.looks()
		w.clock.Step(suspicionTime)
		w.boss.looks()
		w.holds(runs(in), runs(other))
		w.unwritten(run)
	})
	t.Run("with a slot", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		run := w.run("later")
		w.boss.asks(run, true)
		run = w.write(run, newer)
		for range 2 {
			w.boss.looks()
			w.clock.Step(grantTime)
		}
		w.holds(runs(run), nil)
		w.unwritten(run)
	})
	t.Run("with a slot since it was read", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		run := w.run("later")
		w.boss.asks(run, true)
		must(t, leaveLine(w.ctx(), w.boss.Controller, taking{at: store.Key{Policy: "batch", Tenant: tenant}}, fact{uid: run.UID}))
		w.holds(runs(run), nil)
	})
	t.Run("in a pool", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 5)
		w.shared(1)
		w.boss.looks()
		in, run := w.of("acme", "in"), w.of("acme", "later")
		w.boss.asksOf(in, true)
		w.boss.asksOf(run, false)
		for _, one := range runs(in, run) {
			must(t, leaveLine(w.ctx(), w.boss.Controller, taking{at: store.PoolOf("batch")}, fact{uid: one.UID}))
		}
		w.counted(map[string]string{string(in.UID): "acme"})
		if b, err := w.boss.quota.Snapshot(w.ctx(), store.PoolOf("batch")); err != nil || len(b.Queue) != 0 {
			t.Errorf("in line: %v, %v", b.Queue, err)
		}
	})
}
