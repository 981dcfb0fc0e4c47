// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
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
	owners, err := w.boss.quota.Claims(w.ctx(), tenant)
	if must(t, err); len(owners) != 0 {
		t.Errorf("keys of a run that is gone: %v", owners)
	}
}
