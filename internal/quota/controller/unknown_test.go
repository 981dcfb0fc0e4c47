// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// looksLong makes a resync, and another one after what is unknown was so for long enough.
func (k *instance) looksLong() {
	k.w.t.Helper()
	k.looks()
	k.w.clock.Step(resyncs.UnknownTime)
	k.looks()
}

// A client whose creations are refused after the reservation would have each resync read all runs.
//
// mutation: unknown that has runs with reserved keys makes this fail.
func TestAReservedKeyMakesNoLiveList(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	never := w.run("never", withKey("k"))
	never.UID = types.UID("never-created")
	if owner, err := w.boss.ReserveKey(w.ctx(), never, tenant, time.Hour); owner != nil || err != nil {
		t.Fatalf("reserve: %+v, %v", owner, err)
	}
	before := w.boss.calls.of("list") // the rebuild made some
	w.boss.looksLong()
	if n := w.boss.calls.of("list") - before; n != 0 {
		t.Errorf("%d live lists for a run that is about to be created", n)
	}
}

// lapse reserves a key for a moment, for a run that is not created in time, and waits until
// that has ended.
func (k *instance) lapse(name string) {
	k.w.t.Helper()
	never := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-of-" + name)}}
	never.Spec.IdempotencyKey = "key-of-" + name
	if owner, err := k.ReserveKey(k.w.ctx(), never, tenant, time.Millisecond); owner != nil || err != nil {
		k.w.t.Fatalf("reserve: %+v, %v", owner, err)
	}
	k.w.until("the reservation has ended", func() bool { return !k.keys()[never.Spec.IdempotencyKey].Reserved })
}

func (k *instance) keys() map[string]store.Claim {
	k.w.t.Helper()
	owners, err := k.quota.Claims(k.w.ctx(), tenant)
	must(k.w.t, err)
	return owners
}

// The webhook reserves for less time than there is between two resyncs.
//
// mutations: unknown that has runs whose reservation has ended makes this fail, as does a resync
// that does not give up their keys.
func TestAReservationThatHasEndedMakesNoLiveList(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	before := w.boss.calls.of("list")
	for i := range 3 {
		w.boss.lapse(fmt.Sprint("never-", i))
		w.clock.Step(resyncPause)
		w.boss.looks()
	}
	if n := w.boss.calls.of("list") - before; n != 0 {
		t.Errorf("%d live lists for runs that were never created", n)
	}
	if keys := w.boss.keys(); len(keys) != 0 {
		t.Errorf("keys of runs that were never created: %v", keys)
	}
}

// A cache is behind, and the run has not claimed its key yet.
//
// mutation: a resync that gives up the key without a live look makes this fail.
func TestARunThatTheCacheDoesNotKnowYetKeepsItsReservedKey(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	w.boss.freeze()
	born := w.run("born", withKey("k"))
	if owner, err := w.boss.ReserveKey(w.ctx(), born, tenant, time.Millisecond); owner != nil || err != nil {
		t.Fatalf("reserve: %+v, %v", owner, err)
	}
	w.until("the reservation has ended", func() bool { return !w.boss.keys()["k"].Reserved })
	w.boss.looksLong()
	if _, kept := w.boss.keys()["k"]; !kept {
		t.Error("a run that exists has lost its key")
	}
}

// mutation: a resync that looks at each run whose reservation has ended makes this fail.
func TestVeryManyReservationsThatHaveEndedAreFoundWithOneList(t *testing.T) {
	w := newWorld(t)
	w.boss.looks()
	for i := range mostLooks + 1 {
		w.boss.lapse(fmt.Sprint("never-", i))
	}
	lists, gets := w.boss.calls.of("list"), w.boss.calls.of("get")
	w.boss.looks()
	lists, gets = w.boss.calls.of("list")-lists, w.boss.calls.of("get")-gets
	if lists != 1 || gets != 0 {
		t.Errorf("%d live lists, %d live reads", lists, gets)
	}
	if keys := w.boss.keys(); len(keys) != 0 {
		t.Errorf("%d keys of runs that were never created", len(keys))
	}
}

// Runs are deleted all the time, between the look at the claims and that at the cache, too. Who
// deletes them releases their keys at once.
//
// mutation: gone that lists at the first look makes this fail; so does one that never does.
func TestARunThatWasDeletedAMomentAgoMakesNoLiveList(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 2)
	w.boss.looks()
	keyed, in := w.run("keyed", withKey("k")), w.boss.admits(w.run("in"))
	w.boss.claims(keyed, nil)
	w.remove(keyed)
	w.remove(in)
	before := w.boss.calls.of("list")
	w.boss.looks()
	if n := w.boss.calls.of("list") - before; n != 0 {
		t.Errorf("%d live lists at the first look", n)
	}
	w.holds(runs(in), nil)
	w.clock.Step(resyncs.UnknownTime)
	w.boss.looks()
	if n := w.boss.calls.of("list") - before; n == 0 {
		t.Error("no live list after the time of grace")
	}
	w.holds(nil, nil)
	if keys := w.boss.keys(); len(keys) != 0 {
		t.Errorf("keys of a run that is gone: %v", keys)
	}
}

// The webhook reserves for less time than the API server may take for a creation.
//
// mutations: ReleaseClaim that does not tell a claim that is Lapsed, or a caller that does not,
// makes this fail.
func TestARunThatIsCreatedWhileSomebodyLooksForItKeepsItsKey(t *testing.T) {
	var late, second *v1alpha1.WorkflowRun
	told := func(t *testing.T, owner *Owner, err error) {
		t.Helper()
		if err != nil || owner == nil || owner.Name != "default/late" {
			t.Errorf("owner %+v, %v; want the run that was created", owner, err)
		}
	}
	for name, look := range map[string]func(t *testing.T, k *instance){
		"a resync": func(_ *testing.T, k *instance) { k.looks() },
		"a run that claims": func(t *testing.T, k *instance) {
			owner, err := k.Claim(k.w.ctx(), second, tenant)
			told(t, owner, err)
		},
		"a creation": func(t *testing.T, k *instance) {
			owner, err := k.ReserveKey(k.w.ctx(), second, tenant, time.Hour)
			told(t, owner, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.boss.looks()
			w.boss.freeze()
			late, second = w.run("late", withKey("k")), w.run("second", withKey("k"))
			if owner, err := w.boss.ReserveKey(w.ctx(), late, tenant, time.Millisecond); owner != nil || err != nil {
				t.Fatalf("reserve: %+v, %v", owner, err)
			}
			w.until("the reservation has ended", func() bool { return !w.boss.keys()["k"].Reserved })
			other, gets := w.instance(), 0
			w.boss.beforeA = func(op string) {
				if op != "get" {
					return
				}
				w.boss.refuseGet = nil
				if gets++; gets == 1 { // it is created, and looked at, once this read has found nothing
					w.boss.refuseGet = apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "late")
					other.claims(late, nil)
				}
			}
			look(t, w.boss)
			if c := w.boss.keys()["k"]; c.UID != string(late.UID) || c.Lapsed || gets == 0 {
				t.Errorf("after %d live reads the key is that of %+v; want the run that was created", gets, c)
			}
		})
	}
}

// mutation: a resync that ends at the first live read that fails makes this fail.
func TestAReservationThatCannotBeLookedAtKeepsNoSlot(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.lapse("never")
	w.write(w.boss.admits(w.run("over")), ended)
	broken := errors.New("test")
	w.boss.refuseGet = broken
	if _, err := w.boss.resync(w.ctx()); !errors.Is(err, broken) {
		t.Errorf("resync: %v; want the cause", err)
	}
	w.holds(nil, nil)
	if keys := w.boss.keys(); len(keys) != 1 {
		t.Errorf("keys: %v; want that of the run that was not looked at", keys)
	}
}
