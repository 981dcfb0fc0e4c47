// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// looksAgain makes a resync after what is not used has been known for long enough.
func (w *world) looksAgain() {
	w.t.Helper()
	w.clock.Step(grantTime)
	w.boss.looks()
}

// A run was granted a slot, or is next in line, and does not come to use it: the revision of its
// Workflow is gone, or a webhook that is down keeps its status from being written.
//
// mutations: an audit that finds nothing unused, of slots or of places; takeBack without a mark,
// or without a look after it; suspect that does not wait, or that does not look at what is kept.
func TestWhatIsNotUsedGoesToOthers(t *testing.T) {
	granted := func(t *testing.T) (w *world, run *v1alpha1.WorkflowRun) {
		w = newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		run = w.run("a")
		w.instance().asks(run, true)
		w.boss.looks()
		w.clock.Step(grantTime - time.Second)
		w.boss.looks()
		w.holds(runs(run), nil)
		return w, run
	}
	t.Run("a slot", func(t *testing.T) {
		w, run := granted(t)
		b := w.run("b")
		w.boss.asks(b, false)
		w.boss.woke()
		w.looksAgain()
		w.holds(nil, runs(b))
		w.boss.wakes("b")
		w.boss.admits(b)
		if _, err := w.tryWrite(run, admittedUnder("batch")); !apierrors.IsConflict(err) {
			t.Errorf("the grant was written: %v", err)
		}
		w.boss.drifted("0 0 0")
	})
	t.Run("a slot that is used at the last moment", func(t *testing.T) {
		w, run := granted(t)
		w.boss.beforeA = func(op string) {
			if op == "patch" {
				w.boss.beforeA = nil
				w.write(run, admittedUnder("batch"))
			}
		}
		w.looksAgain()
		w.holds(runs(run), nil)
	})
	for code, patches := range map[int32]int{400: 2, 404: 3, 409: 3} { // the last ones are tried several times
		t.Run(fmt.Sprint("a slot of a run that may not be changed, by code ", code), func(t *testing.T) {
			w, run := granted(t)
			frozen := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "a webhook denied it"}}
			w.boss.refusePatch = slices.Repeat([]error{frozen}, patches)
			w.looksAgain() // no error: it would have all quotas looked at again and again
			w.holds(runs(run), nil)
			w.boss.looks()
			w.holds(nil, nil)
		})
	}
	t.Run("the turn in line", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		in, first, last := w.boss.admits(w.run("in")), w.run("a", func(s *v1alpha1.WorkflowRunSpec) { s.Priority = 1 }), w.run("b")
		w.boss.asks(first, false)
		w.boss.asks(last, false)
		w.boss.releases(w.write(in, ended))
		w.boss.looks()
		w.boss.asks(last, false)
		w.boss.woke()
		w.looksAgain()
		w.boss.wakes("b")
		w.boss.admits(last)
	})
}

// Whoever takes over a run that is suspended asks nothing for it: what the process before left is
// found here.
//
// mutation: an audit that leaves a slot to a run that is suspended.
func TestASlotThatASuspendedRunWasLeftIsTaken(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	run := w.run("a")
	w.instance().asks(run, true)
	run.Spec.Suspend = true
	must(t, w.client.Update(w.ctx(), run))
	w.boss.looks()
	w.holds(runs(run), nil)
	w.clock.Step(suspicionTime)
	w.boss.looks()
	w.holds(nil, nil)
}

// mutations: suspect that takes what is kept, or leaves it after its time; factOf
// without keptUntil.
func TestASlotThatIsKeptForLocksIsTakenOnlyAfterItsTime(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	run := w.run("a")
	w.boss.asks(run, true)
	run = w.write(run, func(st *v1alpha1.WorkflowRunStatus) {
		at := metav1.NewMicroTime(w.clock.Now().Add(time.Hour))
		st.Admission = &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "x", StartedAt: metav1.NewTime(w.clock.Now())}, SlotExpiresAt: &at}
	})
	w.boss.looks()
	w.looksAgain()
	w.holds(runs(run), nil)
	w.clock.Step(time.Hour)
	w.boss.looks()
	w.holds(runs(run), nil)
	w.looksAgain()
	w.holds(nil, nil)
}

// mutation: an audit of pools that finds nothing unused.
func TestWhatIsNotUsedGoesToOtherTenants(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.shared(1)
	w.boss.looks()
	a, b := w.of("acme", "a"), w.of("beta", "b")
	w.boss.asksOf(a, true)
	w.boss.asksOf(b, false)
	w.boss.looks()
	w.boss.woke()
	w.looksAgain()
	w.boss.wakes("b")
	w.boss.admitsOf(b)
}

func answered(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "a webhook denied it"}}
}

// A run that waits, and that nobody may change, is counted as if it were admitted: a process may
// have been granted a slot before the loss, and write that once the run may be changed again.
//
// mutations: touch that hands on each error; asIfAdmitted that counts nothing, or that does not
// read the run again, or takes a key from a run that is admitted; keysOf without such runs.
func TestARunThatMayNotBeMarkedCostsItsTenantOneSlot(t *testing.T) {
	for name, refuse := range map[string]error{
		"by a policy": answered(403), "by a webhook without a reason": answered(400), "as a conflict": answered(409), "as not found": answered(404),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			frozen := w.run("frozen", withKey("k"))
			w.boss.claims(frozen, nil)
			w.instance().asks(frozen, true)
			w.boss.frozen = map[string]error{"frozen": refuse}
			w.server.FlushAll()
			w.boss.looks()
			w.holds(runs(frozen), nil)
			b, same := w.run("b"), w.run("same", withKey("k"))
			w.boss.asks(b, false)
			if owner, err := w.boss.Claim(w.ctx(), same, tenant); err != nil || owner == nil {
				t.Errorf("its key is another's: %v, %v", owner, err)
			}
			w.boss.admitsOf(w.of("beta", "c"))
			w.boss.looks()
			w.boss.releases(w.write(w.write(frozen, admittedUnder("batch")), ended)) // the grant of before the loss
			w.boss.admits(b)
		})
	}
	t.Run("it is admitted as it is marked", func(t *testing.T) {
		w := newWorld(t)
		w.policyOf("old", "old", 1)
		w.policy("batch", 1)
		w.boss.looks()
		frozen := w.run("frozen")
		w.boss.frozen = map[string]error{"frozen": answered(403)}
		w.boss.beforeA = func(op string) {
			if op == "patch" {
				w.boss.beforeA = nil
				w.write(frozen, admittedUnder("old"))
			}
		}
		w.server.FlushAll()
		w.boss.looks()
		b, err := w.boss.quota.Snapshot(w.ctx(), store.Key{Policy: "old", Tenant: tenant})
		if err != nil || len(b.Slots) != 1 {
			t.Errorf("slots %+v, %v; want its own", b.Slots, err)
		}
		w.boss.admits(w.run("b")) // it has none here
	})
	t.Run("another has its key", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 2)
		w.boss.looks()
		in := w.run("in", withKey("k"))
		w.run("frozen", withKey("k"))
		w.boss.claims(in, nil)
		in = w.boss.admits(in)
		w.boss.frozen = map[string]error{"frozen": answered(403)}
		w.server.FlushAll()
		w.boss.looks()
		w.boss.claims(in, nil)
	})
}

// Anybody who may create runs may make many that may not be changed.
//
// mutations: asIfAdmitted that counts all of them, or those that are behind in line; roomBeside
// that passes over who is admitted, or touch that marks who is suspended.
func TestRunsThatMayNotBeMarkedCostNoMoreThanTheyMayHave(t *testing.T) {
	frozen := func(w *world, change ...func(*v1alpha1.WorkflowRunSpec)) (all []*v1alpha1.WorkflowRun) {
		w.boss.frozen = map[string]error{}
		for i := range 5 {
			name := fmt.Sprint("frozen-", i)
			all = append(all, w.run(name, append(change, func(s *v1alpha1.WorkflowRunSpec) { s.Priority = int32(i) })...))
			w.boss.frozen[name] = answered(403)
		}
		return all
	}
	t.Run("one, where one is let in", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		all := frozen(w)
		w.server.FlushAll()
		w.boss.looks()
		w.holds(runs(all[4]), nil)
		w.boss.frozen = nil
		for _, run := range all {
			w.boss.tries(run.Name)
		}
		w.atMost(1)
		w.boss.releases(w.write(w.get("frozen-4"), ended))
		w.boss.admits(w.get("frozen-3"))
	})
	t.Run("none, where all slots are in use", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 1)
		w.boss.looks()
		in := w.boss.admits(w.run("in"))
		frozen(w)
		w.server.FlushAll()
		w.boss.looks()
		w.holds(runs(in), nil)
	})
	t.Run("what a pool has", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 9)
		w.shared(3)
		w.boss.looks()
		in := w.boss.admitsOf(w.of("acme", "in"))
		all := frozen(w)
		w.server.FlushAll()
		w.boss.looks()
		w.counted(map[string]string{string(in.UID): "acme", string(all[4].UID): tenant, string(all[3].UID): tenant})
	})
	t.Run("nothing while they are suspended", func(t *testing.T) {
		w := newWorld(t)
		w.policy("batch", 9)
		w.shared(3)
		w.boss.looks()
		frozen(w, suspended)
		w.server.FlushAll()
		w.boss.looks()
		w.boss.admitsOf(w.of("acme", "b"))
		if n := w.boss.calls.of("patch"); n != 0 {
			t.Errorf("%d patches", n)
		}
	})
}

// Of these nobody knows what they may have, or what may be written of them.
//
// mutations: touch that counts a run without a tenant, or goes on where a webhook is away.
func TestARunOfNoTenantThatMayNotBeMarkedKeepsAllShut(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(w *world)
		refuse error
	}{
		"not pinned":        {func(w *world) { w.create("frozen") }, answered(403)},
		"a webhook is away": {func(w *world) { w.run("frozen") }, answered(500)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 1)
			w.boss.looks()
			c.make(w)
			w.run("b")
			w.boss.frozen = map[string]error{"frozen": c.refuse}
			w.server.FlushAll()
			if _, err := w.boss.resync(w.ctx()); err == nil {
				t.Error("no error")
			}
			w.boss.isClosed(w.get("b"))
			w.boss.frozen = nil
			w.boss.looks()
			w.boss.admits(w.get("b"))
		})
	}
}
