// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Runs of one tenant wait for each other in rings again and again. Each resync refuses one of each
// ring that stands alone, so an older ring of another tenant does not stand until there is no
// younger one.
//
// mutation: endRings that ends one ring only makes this fail.
func TestAResyncEndsAllRings(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	for i := range 3 {
		x, y := fmt.Sprint("mutex:x", i), fmt.Sprint("mutex:y", i)
		first, second := s.run(fmt.Sprint("first", i), nil), s.run(fmt.Sprint("second", i), nil)
		r.asks(first, "", x, store.LocksHeld)
		r.asks(second, "", y, store.LocksHeld)
		r.asks(first, "a", y, store.LocksWaiting)
		r.asks(second, "a", x, store.LocksWaiting)
	}
	must(t, r.Resync(t.Context()))
	if all := r.inVain(); len(all) != 3 {
		t.Errorf("refused: %v, want one of each ring", all)
	}
}

// inVain are the tickets of those that were refused as they waited for themselves.
func (r *replica) inVain() (all []string) {
	r.s.t.Helper()
	snapshot, err := r.store.SnapshotLocks(r.s.t.Context())
	must(r.s.t, err)
	for _, w := range snapshot.Waiters {
		if w.Refused == store.LocksDeadlock {
			all = append(all, w.Ticket.ID)
		}
	}
	return all
}

// kicked says whether another resync was asked for since this was last asked.
func (r *replica) kicked() bool {
	select {
	case <-r.kicks.Asked():
		return true
	default:
		return false
	}
}

// One run may be in many rings. One of them is ended at a time, and the next resync is asked for,
// which begins a second later. When nothing is refused, none is.
//
// mutations: endRings that asks for no resync, or for one whatever it finds, make this fail.
func TestAResyncThatEndsARingAsksForTheNext(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	r.kicked()
	hub := s.run("hub", nil)
	r.asks(hub, "", "mutex:hub", store.LocksHeld)
	for i := range 2 {
		lock, run := fmt.Sprint("mutex:l", i), s.run(fmt.Sprint("run", i), nil)
		r.asks(run, "", lock, store.LocksHeld)
		r.asks(hub, fmt.Sprint("a/", i), lock, store.LocksWaiting)
		run.CreationTimestamp.Time = run.CreationTimestamp.Add(time.Hour) // it is younger
		r.asks(run, "a", "mutex:hub", store.LocksWaiting)
	}
	for _, want := range []int{1, 2, 2} {
		refused := len(r.inVain()) < want
		must(t, r.Resync(t.Context()))
		if n, asked := len(r.inVain()), r.kicked(); n != want || asked != refused {
			t.Errorf("%d are refused, want %d; another resync is asked for: %t", n, want, asked)
		}
	}
}

// Two child runs of one tree wait for each other. When one is refused the tree moves on, but its
// locks are held until it knows: nobody else of it is refused meanwhile.
//
// mutation: deadlocked that takes no notice of who was refused makes this fail.
func TestNobodyElseIsRefusedUntilARefusalIsKnown(t *testing.T) {
	s, v := store.LocksSnapshot{}, view{runs: map[types.UID]fact{}, parents: map[string]string{}}
	tied{run: "a", tree: "root", holds: []string{"a"}}.enter(&s, 1)
	tied{run: "b", tree: "root", holds: []string{"b"}}.enter(&s, 1)
	tied{run: "a", part: "step", tree: "root", waits: []string{"b"}}.enter(&s, 2)
	tied{run: "b", part: "step", tree: "root", waits: []string{"a"}}.enter(&s, 1)
	if got := refuses(t, s, oneEach, &v); got != "a/step" {
		t.Errorf("refuses %q", got)
	}
	s.Waiters[0].Refused = store.LocksDeadlock
	if got := refuses(t, s, oneEach, &v); got != "" {
		t.Errorf("refuses %q, too", got)
	}
}

// A step that was refused has heard of it, and its run, a child run, still holds its lock: it
// cleans up. For half a minute that is no ring.
//
// mutations: endRings that does not remember whom it refused, or that does for ever,
// make this fail.
func TestTheRunOfARefusedStepHasTimeToEnd(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	a, b := s.run("a", nil), s.run("b", nil)
	ask := func(run *v1alpha1.WorkflowRun, part, lock, want string) {
		k := store.Ticket{ID: TicketOf(run.UID, part), Run: run.Namespace + "/" + run.Name, Tree: run.Namespace + "/root", Version: run.ResourceVersion, Created: run.CreationTimestamp.Time}
		got, err := r.store.TakeLocks(t.Context(), k, []store.Want{{Name: lock, Permits: 1, Limit: 1, Longest: 9}})
		if must(t, err); got.State != want {
			t.Fatalf("%s takes %s: %+v", k.ID, lock, got)
		}
	}
	ask(a, "", "mutex:a", store.LocksHeld)
	ask(b, "", "mutex:b", store.LocksHeld)
	ask(a, "s", "mutex:b", store.LocksWaiting)
	ask(b, "s", "mutex:a", store.LocksWaiting)
	must(t, r.Resync(t.Context()))
	first := r.inVain()
	if len(first) != 1 {
		t.Fatalf("refused: %v", first)
	}
	_, err := r.store.DropLocks(t.Context(), store.Dropping{Ticket: first[0]}) // it has heard of it
	must(t, err)
	must(t, r.Resync(t.Context()))
	if all := r.inVain(); len(all) > 0 {
		t.Errorf("%v are refused, too", all)
	}
	s.clock.Step(resyncPause - 1)
	early := len(r.ending(&view{}))
	s.clock.Step(1)
	if late := len(r.ending(&view{})); early != 1 || late != 0 {
		t.Errorf("%d are remembered, and after half a minute %d", early, late)
	}
}

// A ring that waits for another one may end with that, and then none of it is refused. But where
// another comes before it again and again, it is not left to stand.
//
// mutations: a youngest that takes sets that wait for another one, and endRings that never takes
// them, make this fail.
func TestARingBehindOthersIsNotLeftForLong(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	old, older := s.run("old", nil), s.run("older", nil)
	r.asks(old, "", "mutex:x", store.LocksHeld)
	r.asks(older, "", "mutex:y", store.LocksHeld)
	r.asks(older, "a", "mutex:x", store.LocksWaiting)
	both := func() {
		name := old.Namespace + "/" + old.Name
		k := store.Ticket{ID: TicketOf(old.UID, "a"), Run: name, Tree: name, Version: old.ResourceVersion, Created: old.CreationTimestamp.Time}
		_, err := r.store.TakeLocks(t.Context(), k, []store.Want{{Name: "mutex:y", Permits: 1, Limit: 1, Longest: 9}, {Name: "mutex:hub", Permits: 1, Limit: 1, Longest: 9}})
		must(t, err)
	}
	hub := s.run("hub", nil)
	r.asks(hub, "", "mutex:hub", store.LocksHeld)
	both()
	waits := []string{TicketOf(old.UID, "a"), TicketOf(older.UID, "a")}
	for round := range mostPassedOver + 1 {
		lock, run := fmt.Sprint("mutex:l", round), s.run(fmt.Sprint("run", round), nil)
		r.asks(run, "", lock, store.LocksHeld)
		r.asks(hub, fmt.Sprint("a/", round), lock, store.LocksWaiting)
		run.CreationTimestamp.Time = run.CreationTimestamp.Add(time.Hour)
		r.asks(run, "a", "mutex:hub", store.LocksWaiting)
		must(t, r.Resync(t.Context()))
		refused := slices.ContainsFunc(r.inVain(), func(id string) bool { return slices.Contains(waits, id) })
		if refused != (round == mostPassedOver) {
			t.Fatalf("after round %d of %d it is ended: %t", round+1, mostPassedOver+1, refused)
		}
	}
}

// hubStatus is that of a run of items of which the last ones were refused, and the others wait.
func hubStatus(items, failed int, fence int64) *v1alpha1.WorkflowRunStatus {
	each := &v1alpha1.ForEachStatus{Total: int32(items), Begun: int32(items), Failed: int32(failed)}
	for i := range items - failed {
		each.Locks = append(each.Locks, v1alpha1.ItemLocks{Item: int32(i), LockWait: &v1alpha1.LocksWait{Lock: "mutex:l", StartedAt: metav1.Now()}})
	}
	return &v1alpha1.WorkflowRunStatus{
		Locks: []v1alpha1.LockHold{{Name: "mutex:hub", Permits: 1, Fence: fence}},
		Steps: []v1alpha1.StepStatus{{Name: "a", Phase: v1alpha1.StepRunning, ForEach: each}},
	}
}

// A run is in several rings, and the refusal of its item ends one of them. Its status says soon
// that it goes on, and the next ring is ended then: not half a minute later. Until then the next
// look is asked for, though this one refuses nobody.
//
// mutations: ending that remembers whose run goes on, and endRings that asks for no look where what
// was refused hides a ring.
func TestRingsOfOneRunAreEndedOneAfterTheOther(t *testing.T) {
	const rings = 3
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	spec := v1alpha1.WorkflowRunSpec{Locks: []v1alpha1.LockRequest{{Mutex: "hub"}}, Steps: steps()}
	spec.Steps[0].ForEach = &v1alpha1.ForEach{Items: "${[1,2,3]}", Locks: []v1alpha1.LockRequest{{Mutex: "l"}}}
	hub := s.with(spec)
	hub.CreationTimestamp.Time = hub.CreationTimestamp.Add(time.Hour) // it is the youngest
	r.asks(hub, "", "mutex:hub", store.LocksHeld)
	snapshot, err := r.store.SnapshotLocks(t.Context())
	must(t, err)
	for i := range rings {
		lock, run := fmt.Sprint("mutex:l", i), s.run(fmt.Sprint("run", i), nil)
		r.asks(run, "", lock, store.LocksHeld)
		r.asks(run, "a", "mutex:hub", store.LocksWaiting)
		r.asks(hub, fmt.Sprint("a/", i), lock, store.LocksWaiting)
	}
	r.kicked()
	for round := range rings {
		must(t, r.Resync(t.Context()))
		if all := r.inVain(); len(all) != 1 || !r.kicked() {
			t.Fatalf("round %d: %v are refused, want one, and the next look", round, all)
		}
		must(t, r.Resync(t.Context())) // it has not heard of it
		if all, asked := r.inVain(), r.kicked(); len(all) != 1 || asked != (round < rings-1) {
			t.Fatalf("round %d: %v are refused, and another look is asked for: %t", round, all, asked)
		}
		_, err := r.store.DropLocks(t.Context(), store.Dropping{Ticket: r.inVain()[0]})
		must(t, err)
		now := s.get(hub.Name)
		now.Status = hubStatus(rings, round+1, snapshot.Holds[0].Fence)
		must(t, s.client.Status().Update(t.Context(), now))
	}
}

// mutations: goesOn that takes a run for one that goes on which does not know, which is cancelled,
// which has ended, or of which nothing waits.
func TestARunThatKnowsOfARefusalGoesOnWhereOthersOfItWait(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.WorkflowRun)
		want   bool
	}{
		"others wait":              {func(*v1alpha1.WorkflowRun) {}, true},
		"it does not know":         {func(run *v1alpha1.WorkflowRun) { run.Status = hubStatus(2, 0, 1) }, false},
		"nothing of it waits":      {func(run *v1alpha1.WorkflowRun) { run.Status = hubStatus(2, 2, 1) }, false},
		"it is cancelled":          {func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownCancel }, false},
		"it has no status":         {func(run *v1alpha1.WorkflowRun) { run.Status = nil }, false},
		"it is another, made anew": {func(run *v1alpha1.WorkflowRun) { run.UID = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{}
			run.UID, run.Status = "uid", hubStatus(2, 1, 1)
			run.Spec.Steps = steps()
			run.Spec.Steps[0].ForEach = &v1alpha1.ForEach{Locks: []v1alpha1.LockRequest{{Mutex: "x"}}}
			c.change(run)
			v := &view{runs: map[types.UID]fact{run.UID: factOf(run)}}
			if got := v.goesOn(store.Ticket{ID: "uid/a/1"}); got != c.want {
				t.Errorf("it goes on: %t, want %t", got, c.want)
			}
		})
	}
}

// A run that is frozen, or suspended, does not hear of its refusal. That hides the rings of its
// tree for some minutes, and not without end.
//
// mutations: ending that counts what is in a snapshot at any age, that forgets it at the bound and
// so begins anew, or that keeps it when it is gone.
func TestARefusalThatIsNotHeardHidesRingsForMinutes(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	for _, why := range []string{store.LocksSuperseded, store.LocksDeadlock} {
		has := store.LocksSnapshot{Waiters: []store.Waiter{{Ticket: store.Ticket{ID: "uid/a"}, Refused: why}, {Ticket: store.Ticket{ID: "uid/b"}}}}
		for i, c := range []struct {
			after time.Duration
			in    store.LocksSnapshot
			want  int
		}{
			{0, has, 1},
			{unheardTime - 1, has, 1},
			{1, has, 0},
			{unheardTime, has, 0},
			{-3 * unheardTime, has, 1}, // the clock was set back
			{resyncPause, has, 1},
			{0, store.LocksSnapshot{}, 0},
			{0, has, 1},
			{resyncPause, store.LocksSnapshot{}, 0},
		} {
			s.clock.Step(c.after)
			if got := len(r.ending(&view{}, c.in)); got != c.want {
				t.Errorf("%s: look %d finds %d that end, want %d", why, i, got, c.want)
			}
		}
	}
}
