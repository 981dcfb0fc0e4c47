// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// mutation: Release without wakeNext makes this fail.
func TestARunThatReleasesWakesTheNext(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 2)
	w.boss.looks()
	a, b, c, d := w.run("a"), w.run("b"), w.run("c"), w.run("d")
	a = w.boss.admits(a)
	w.boss.admits(b)
	w.boss.asks(c, false)
	w.boss.asks(d, false)

	w.boss.releases(w.write(a, ended))
	w.boss.wakes("c")
	w.holds(runs(b), runs(c, d))
	w.boss.asks(d, false)
	w.boss.asks(c, true)
	w.boss.releases(d) // it was suspended, say
	w.boss.wakes()
	w.holds(runs(b, c), nil)
}

// mutation: without the test for a policy without a name this fails: nothing is known of
// Redis' data here.
func TestTheBuiltInDefaultsHaveNoQuota(t *testing.T) {
	w := newWorld(t)
	w.server.Stop()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "u"}}
	want := store.Answer{Admitted: true, Limit: policy.NoLimit}
	a, err := w.boss.Admit(w.ctx(), run, tenant, policy.Defaults())
	b, err2 := w.boss.Reserve(w.ctx(), run, tenant, policy.Defaults(), time.Second)
	if err != nil || err2 != nil || !gocmp.Equal(a, want) || !gocmp.Equal(b, want) {
		t.Errorf("admit: %+v, %v; reserve: %+v, %v; want %+v", a, err, b, err2, want)
	}
	must(t, w.boss.Release(w.ctx(), run.UID, tenant, ""))
	must(t, w.boss.ReleaseKey(w.ctx(), run.UID, tenant, ""))
	if owner, err := w.boss.Claim(w.ctx(), run, tenant); owner != nil || err != nil {
		t.Errorf("claim without a key: %+v, %v", owner, err)
	}
}

// mutation: wakeNext that does not release who is gone makes this fail: the place of b stays taken.
func TestWhoIsGoneOrOverGivesUpItsTurn(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a := w.boss.admits(w.run("a"))
	gone, again, over, next := w.run("b"), w.run("c"), w.run("d"), w.run("e")
	for _, run := range runs(gone, again, over, next) {
		w.boss.asks(run, false)
	}
	w.remove(gone)
	w.remove(again)
	w.run("c") // another run has the name now
	w.write(over, ended)

	w.boss.releases(w.write(a, ended))
	w.boss.wakes("e")
	w.holds(nil, runs(next))
}

// mutation: exists that believes the cache when it has no such run makes this fail: the run
// loses its place.
// mutation: free.lua that gives no names makes this fail: nobody is woken.
func TestARunThatOnlyAnotherProcessKnowsIsWoken(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a := w.boss.admits(w.run("a"))
	w.boss.freeze() // before b is made
	b := w.run("b")
	w.instance().asks(b, false)

	w.boss.releases(w.write(a, ended))
	w.boss.wakes("b")
	w.holds(nil, runs(b))
}

// mutation: limitsNow that takes a deleted policy for one without a limit makes this fail.
func TestReleaseUnderADeletedPolicy(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a, b := w.boss.admits(w.run("a")), w.run("b")
	w.boss.asks(b, false)
	must(t, w.client.Delete(w.ctx(), &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}))
	w.boss.releases(w.write(a, ended))
	w.boss.wakes() // b is for another quota
	w.holds(nil, runs(b))
}

// A process saw a run suspended, and was paused; meanwhile the run was resumed and admitted.
// mutation: Release without putBack makes this fail.
func TestWhoReleasesTooLateGivesTheSlotBack(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	first := w.boss.admits(w.run("first"))
	paused, run, other := w.instance(), w.run("a"), w.run("b")
	paused.asks(run, false)
	paused.freeze()
	w.boss.releases(w.write(first, ended))
	run = w.boss.admits(run)

	paused.releases(run)
	w.holds(runs(run), nil)
	w.boss.asks(other, false)

	w.write(run, ended)
	paused.asks(other, false)
	paused.releases(run) // it ended: there is nothing to give back, whatever the cache says
	w.boss.asks(other, true)
}

// A run was suspended while its question polled for the lock of the tenant; it was resumed, another
// process drives it now and got a slot. Only then did the question end.
//
// mutations: GiveUp that does not remember the run makes this fail: two are in, with one slot. So
// does one that does not forget it.
func TestAQuestionThatEndsLateGivesTheSlotBack(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	first := w.boss.admits(w.run("first"))
	polling, run := w.instance(), w.run("a")
	polling.asks(run, false)
	polling.freeze()
	polling.releases(run) // it is suspended
	w.boss.releases(w.write(first, ended))
	run = w.boss.admits(run)
	must(t, polling.GiveUp(w.ctx(), run, tenant, "batch"))
	w.holds(runs(run), nil)
	w.boss.asks(w.run("b"), false)

	w.server.Stop()
	if err := polling.GiveUp(w.ctx(), run, tenant, "batch"); err == nil || len(polling.names) != 0 {
		t.Errorf("without Redis: %v, and it remembers %v", err, polling.names)
	}
}

// mutation: Forget that does nothing makes this fail: nothing else forgets in a process that has
// no resyncs.
func TestWhoDrivesARunNoMoreForgetsItsName(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.admits(w.run("first"))
	other, run := w.instance(), w.run("a")
	other.asks(run, false)
	other.Forget(run.UID)
	if len(other.names) != 0 {
		t.Errorf("names: %v", other.names)
	}
	w.holds(runs(w.get("first")), runs(run))
}

// mutation: Release that keeps the name while the data is closed makes this fail: nobody calls
// it again.
func TestARunThatIsReleasedWhileTheDataIsLostIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.admits(w.run("first"))
	other, run := w.instance(), w.run("a")
	other.asks(run, false)
	w.server.FlushAll()
	other.releases(run)
	if len(other.names) != 0 {
		t.Errorf("names: %v", other.names)
	}
}

// mutation: Release that returns the error of a quota that is being rebuilt makes this fail.
func TestReleaseNeedsNoRepetitionWhenTheQuotaIsClosed(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a, b := w.boss.admits(w.run("a")), w.run("b")
	w.boss.asks(b, false)
	w.server.FlushAll()
	w.boss.releases(w.write(a, ended))
	must(t, w.boss.ReleaseKey(w.ctx(), a.UID, tenant, "key"))
	w.boss.looks()
	w.boss.wakes("b")
	w.boss.asks(b, true)
	w.boss.drifted("0 0 0")
}

// mutation: Release that does not ask for a resync makes the first part of this fail, over that
// adds no slots the second.
func TestAReleaseThatRedisDidNotHearIsDoneByTheNextResync(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	a, b := w.boss.admits(w.run("a")), w.run("b")
	w.boss.asks(b, false)
	a = w.write(a, ended)
	broken := errors.New("test: no answer")
	w.boss.refuse = broken
	if err := w.boss.Release(w.ctx(), a.UID, tenant, "batch"); !errors.Is(err, broken) {
		t.Fatalf("leave: %v; want the cause", err)
	}
	if len(w.boss.kicks.Asked()) != 1 {
		t.Error("no round was asked for")
	}
	if _, err := w.boss.resync(w.ctx()); !errors.Is(err, broken) {
		t.Fatalf("round: %v; want the cause", err)
	}
	w.boss.wakes()
	w.boss.refuse = nil
	w.boss.looks()
	w.boss.wakes("b")
	w.holds(nil, runs(b))
	w.boss.drifted("1 0 0")
}

func TestReserve(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	coming := func(uid types.UID) *v1alpha1.WorkflowRun {
		return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "coming", Namespace: "default", UID: uid}}
	}
	for i, step := range []struct {
		uid  types.UID
		ttl  time.Duration
		want bool
	}{{"u1", 0, true}, {"u1", patience, true}, {"u2", patience, false}, {"u1", patience, true}} {
		a, err := w.boss.Reserve(w.ctx(), coming(step.uid), tenant, w.effective("batch"), step.ttl)
		if err != nil || a.Admitted != step.want {
			t.Fatalf("step %d: %+v, %v; want %t", i+1, a, err, step.want)
		}
	}
	w.boss.asks(w.run("a"), false)
	w.boss.asks(coming("u1"), true)
}

// A reservation ends without a run, and somebody waits for that.
//
// mutations: Admit without the kick makes this fail; so does one that does not tell the leader, or
// tells it each time, and a nextDue of always 30 s.
func TestTheEndOfAReservationLetsTheNextOneIn(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	never := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "never", Namespace: "default", UID: "never"}}
	if a, err := w.boss.Reserve(w.ctx(), never, tenant, w.effective("batch"), 5*time.Second); !a.Admitted || err != nil {
		t.Fatalf("reserve: %+v, %v", a, err)
	}
	a := w.run("a")
	w.boss.asks(a, false)
	if len(w.boss.kicks.Asked()) != 1 {
		t.Error("no round was asked for")
	}
	w.boss.quota.wanted(w.ctx())
	other := w.instance() // not the leader
	for i, run := range []*v1alpha1.WorkflowRun{a, a, w.run("b"), a} {
		other.asks(run, false)
		if got, want := w.boss.quota.wanted(w.ctx()), i%2 == 0; got != want {
			t.Errorf("question %d of another process has the leader look: %t, want %t", i+1, got, want)
		}
	}
	due, err := w.boss.resync(w.ctx())
	if err != nil || due > 5*time.Second+reservationSlack {
		t.Fatalf("the next round is due in %s, %v; want when the reservation ends", due, err)
	}
	w.boss.wakes()
	must(t, w.redis.ZAdd(w.ctx(), "{adm:batch:acme}:reserved", redis.Z{Member: "never", Score: 1}).Err()) // time passes
	w.boss.looks()
	w.boss.wakes("a")
	w.boss.asks(a, true)
}

// Reservations may end one after the other, and somebody may always wait. Resyncs read everything
// there is, so they do not follow each other as fast.
//
// mutation: nextDue without a least pause makes this fail.
func TestResyncsPauseHoweverSoonReservationsEnd(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		0: time.Second, 5 * time.Millisecond: time.Second, 5 * time.Second: 5*time.Second + reservationSlack, time.Minute: resyncPause,
	} {
		h := holdings{snapshots: map[store.Key]store.Snapshot{
			{Policy: "batch", Tenant: "acme"}: {Queue: []store.Run{{}}, Reserved: []store.Reservation{{Left: left}, {Left: time.Minute}}},
		}}
		if due := h.nextDue(); due != want {
			t.Errorf("a reservation ends in %s: the next round is due in %s, want %s", left, due, want)
		}
	}
}

// In a pool the reservation may be another tenant's.
//
// mutations: Admit that looks at the tenant's own reservations only, or pool_admit.lua that does
// not tell of all, makes this fail.
func TestTheEndOfAReservationOfAnotherTenantLetsTheNextOneIn(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 9)
	w.shared(2)
	w.boss.looks()
	w.boss.admitsOf(w.of("acme", "in"))
	never := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "never", Namespace: "default", UID: "never"}}
	if a, err := w.boss.Reserve(w.ctx(), never, "beta", w.effective("batch"), 5*time.Second); !a.Admitted || err != nil {
		t.Fatalf("reserve: %+v, %v", a, err)
	}
	a := w.of("acme", "a")
	w.boss.asksOf(a, false)
	if len(w.boss.kicks.Asked()) != 1 {
		t.Error("no round was asked for")
	}
	if !w.boss.quota.wanted(w.ctx()) {
		t.Error("the leader is not asked to look")
	}
	must(t, w.redis.ZAdd(w.ctx(), "{adm:batch:*}:reserved", redis.Z{Member: "never", Score: 1}).Err()) // time passes
	w.boss.looks()
	w.boss.wakes("a")
}

// mutation: each with a width of 1, or without one, makes this fail, as does one that goes on
// after an error.
func TestEachIsBoundedAndStopsAtTheFirstError(t *testing.T) {
	var mu sync.Mutex
	var begun, done int
	synctest.Test(t, func(t *testing.T) {
		free, ended := make(chan struct{}), make(chan error)
		go func() {
			ended <- each(t.Context(), make([]int, 100), func(context.Context, int) error {
				mu.Lock()
				begun++
				mu.Unlock()
				<-free
				mu.Lock()
				defer mu.Unlock()
				done++
				return nil
			})
		}()
		synctest.Wait()
		if begun != width {
			t.Errorf("%d are under way at a time, want %d", begun, width)
		}
		close(free)
		if err := <-ended; err != nil || done != 100 {
			t.Errorf("%v after %d, want all 100", err, done)
		}
	})

	broken := errors.New("test")
	done = 0
	err := each(t.Context(), make([]int, 1000), func(context.Context, int) error {
		mu.Lock()
		defer mu.Unlock()
		if done++; done == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || done > 500 {
		t.Errorf("%v after %d; want the error, and not much more", err, done)
	}
	if err := each(t.Context(), nil, func(context.Context, int) error { return broken }); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
}
