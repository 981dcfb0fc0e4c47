// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv/onebyone"
)

// asks asks for a lock of a part of a run, whatever status says.
func (r *replica) asks(run *v1alpha1.WorkflowRun, part, lock, want string) {
	r.s.t.Helper()
	name := run.Namespace + "/" + run.Name
	k := store.Ticket{ID: TicketOf(run.UID, part), Run: name, Tree: name, Version: run.ResourceVersion, Created: run.CreationTimestamp.Time}
	a, err := r.store.TakeLocks(r.s.t.Context(), k, []store.Want{{Name: lock, Permits: 1, Limit: 1, Longest: 9}})
	if err != nil || a.State != want {
		r.s.t.Fatalf("%s takes %s: %+v, %v; want %s", k.ID, lock, a, err, want)
	}
}

// A refusal is for good, and a snapshot is not of one moment: a step of a run goes on that only
// looked as if it waited for itself.
//
// mutations: a resync that refuses by its first look, or that refuses in none, makes this fail.
func TestARingIsOneIfItLasts(t *testing.T) {
	for name, c := range map[string]struct{ over, refused bool }{
		"it lasts":                    {refused: true},
		"it is over by the next look": {over: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r, other := s.replica(), s.replica()
			must(t, r.Resync(t.Context()))
			first, second := s.run("first", nil), s.run("second", nil)
			r.asks(first, "", "mutex:x", store.LocksHeld)
			r.asks(second, "", "mutex:y", store.LocksHeld)
			r.asks(first, "a", "mutex:y", store.LocksWaiting)
			r.asks(second, "a", "mutex:x", store.LocksWaiting)
			looks := 0
			r.redis.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if slices.Contains(cmd.Args(), any("p0")) {
					if looks++; looks == 2 && c.over { // somebody cancelled the second run
						if _, err := other.store.DropLocks(ctx, store.Dropping{Ticket: string(second.UID)}); err != nil {
							t.Error(err)
						}
					}
				}
				return next(ctx, cmd)
			}))
			must(t, r.Resync(t.Context()))
			if looks != 2 {
				t.Errorf("%d looks, want 2", looks)
			}
			snapshot, err := other.store.SnapshotLocks(t.Context())
			must(t, err)
			var refused []string
			for _, w := range snapshot.Waiters {
				if w.Refused != "" {
					refused = append(refused, w.Ticket.ID+" "+w.Refused)
				}
			}
			if c.refused && len(refused) != 1 || !c.refused && len(refused) > 0 {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}

// Who waits behind the step that is refused, for an Ordered lock that is free, goes on
// by that resync.
//
// mutation: settle that ends the ring after it woke others makes this fail.
func TestWhoIsBehindARefusedStepIsWoken(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	first, second, behind := s.run("first", nil), s.run("second", nil), s.run("behind", nil)
	r.asks(first, "", "mutex:x", store.LocksHeld)
	r.asks(second, "", "mutex:y", store.LocksHeld)
	r.asks(first, "a", "mutex:y", store.LocksWaiting)
	ask := func(run *v1alpha1.WorkflowRun, part string, locks ...string) string {
		name := run.Namespace + "/" + run.Name
		k := store.Ticket{ID: TicketOf(run.UID, part), Run: name, Tree: name, Version: run.ResourceVersion, Created: run.CreationTimestamp.Add(time.Hour)}
		var wants []store.Want
		for _, lock := range locks {
			wants = append(wants, store.Want{Name: lock, Permits: 1, Limit: 1, Longest: 9, Ordered: true})
		}
		a, err := r.store.TakeLocks(t.Context(), k, wants)
		must(t, err)
		return a.State
	}
	for range 2 {
		if a, b := ask(second, "a", "mutex:x", "mutex:z"), ask(behind, "", "mutex:z"); a != store.LocksWaiting || b != store.LocksWaiting {
			t.Fatalf("before: %s, and behind it %s", a, b)
		}
	}
	was := ""
	r.wake = func(run types.NamespacedName) {
		if run.Name == behind.Name {
			was = ask(behind, "", "mutex:z")
		}
	}
	must(t, r.Resync(t.Context()))
	if was != store.LocksHeld {
		t.Errorf("behind it: %q", was)
	}
}

// h is the first in the line of o, which is Ordered and free, and waits for another lock. A step of
// r is behind h in that line: if the other lock is r's, it waits for itself, though nobody holds o.
//
// mutations: a wait that is blocked by what is held only, or behind whoever waits, makes this fail.
func TestARingByWayOfAnOrderedLineIsFound(t *testing.T) {
	for of, want := range map[string]string{"r": store.LocksDeadlock, "y": store.LocksWaiting} {
		t.Run("h waits for "+of, func(t *testing.T) {
			s := newSite(t)
			c := s.replica()
			must(t, c.Resync(t.Context()))
			y, r, h := s.run("y", nil), s.run("r", nil), s.run("h", nil)
			ask := func(run *v1alpha1.WorkflowRun, part, want string, locks ...string) {
				name := run.Namespace + "/" + run.Name
				k := store.Ticket{ID: TicketOf(run.UID, part), Run: name, Tree: name, Version: run.ResourceVersion, Created: run.CreationTimestamp.Time}
				if run == r {
					k.Created = k.Created.Add(time.Hour) // it is younger
				}
				var wants []store.Want
				for _, lock := range locks {
					wants = append(wants, store.Want{Name: lock, Permits: 1, Limit: 1, Longest: 9, Ordered: lock == "mutex:o"})
				}
				a, err := c.store.TakeLocks(t.Context(), k, wants)
				if must(t, err); a.State != want {
					t.Fatalf("%s: %+v, want %s", k.ID, a, want)
				}
			}
			ask(y, "", store.LocksHeld, "mutex:y")
			ask(r, "", store.LocksHeld, "mutex:r")
			ask(h, "", store.LocksWaiting, "mutex:o", "mutex:"+of)
			ask(r, "step", store.LocksWaiting, "mutex:o")
			must(t, c.Resync(t.Context()))
			ask(r, "step", want, "mutex:o")
			ask(h, "", store.LocksWaiting, "mutex:o", "mutex:"+of)
		})
	}
}

// A ring is judged by what runs and semaphores say after the second look, and a refusal is of the
// wait that was judged: who can go on by now is not refused, since a refusal is for good.
//
// mutations: endRings that judges by the limits of before its second look makes this fail, as does
// a refusal of a ticket whatever it waits for.
func TestARingThatEndsBeforeItsRefusalRefusesNobody(t *testing.T) {
	for name, c := range map[string]struct {
		raised, moved bool
		refused       int
	}{
		"it lasts":                   {refused: 1},
		"a limit was raised":         {raised: true},
		"both wait for another lock": {moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r, other := s.replica(), s.replica()
			must(t, r.Resync(t.Context()))
			x, y := s.ns+"-x", s.ns+"-y"
			for _, name := range []string{x, y} {
				must(t, s.client.Create(t.Context(), &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SemaphoreSpec{Permits: 1}}))
			}
			first, second := s.run("first", nil), s.run("second", nil)
			r.asks(first, "", x, store.LocksHeld)
			r.asks(second, "", y, store.LocksHeld)
			r.asks(s.run("third", nil), "", "mutex:z", store.LocksHeld)
			r.asks(first, "a", y, store.LocksWaiting)
			r.asks(second, "a", x, store.LocksWaiting)
			looks := 0
			r.redis.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if slices.Contains(cmd.Args(), any("p0")) {
					if looks++; looks == 2 && c.raised {
						sem := &v1alpha1.Semaphore{}
						must(t, s.client.Get(ctx, client.ObjectKey{Name: x}, sem))
						sem.Spec.Permits = 2
						must(t, s.client.Update(ctx, sem))
					}
				}
				if slices.Contains(cmd.Args(), any(store.LocksDeadlock)) && c.moved {
					c.moved = false
					other.asks(first, "a", "mutex:z", store.LocksWaiting)
					other.asks(second, "a", "mutex:z", store.LocksWaiting)
				}
				return next(ctx, cmd)
			}))
			must(t, r.Resync(t.Context()))
			if looks != 2 || c.moved {
				t.Errorf("%d looks, want 2; moved too late: %t", looks, c.moved)
			}
			snapshot, err := other.store.SnapshotLocks(t.Context())
			must(t, err)
			refused := 0
			for _, w := range snapshot.Waiters {
				if w.Refused != "" {
					refused++
				}
			}
			if refused != c.refused {
				t.Errorf("%d are refused, want %d", refused, c.refused)
			}
		})
	}
}

// mutation: a resync that counts what it did not have to restore makes this fail.
func TestWhatIsThereIsNotCountedAsMissing(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	run := s.run("run", nil)
	a := r.takes(run, lock, store.LocksHeld)
	run.Status = &v1alpha1.WorkflowRunStatus{Locks: []v1alpha1.LockHold{{Name: lock, Permits: 1, Fence: a.Fence}}}
	must(t, s.client.Status().Update(t.Context(), run))
	v := &view{runs: map[types.UID]fact{run.UID: factOf(run)}}
	for range 2 { // it was granted after the snapshot
		must(t, r.restore(t.Context(), v, []string{string(run.UID)}))
	}
	if n := testutil.ToFloat64(r.metrics.missing); n != 0 {
		t.Errorf("%v are counted, and nothing was missing", n)
	}
	_, err := r.store.DropLocks(t.Context(), store.Dropping{Ticket: string(run.UID)})
	must(t, err)
	must(t, r.restore(t.Context(), v, []string{string(run.UID)}))
	if n := testutil.ToFloat64(r.metrics.missing); n != 1 {
		t.Errorf("%v are counted, and one was missing", n)
	}
}

// mutations: keys of another semaphore, or of mutexes, and an order without names, make this fail.
func TestTheStatusOfASemaphoreHasItsKeys(t *testing.T) {
	keys := map[string]*v1alpha1.KeyStatus{}
	for lock, k := range map[string]v1alpha1.KeyStatus{
		"gpus/b": {Key: "b", Held: 1}, "gpus/a": {Key: "a", Held: 1}, "gpus/c": {Key: "c", Queued: 2}, "gpus/d": {Key: "d", Held: 3},
		"gpus-eu/a": {Key: "a", Held: 9}, "mutex:ns/gpus": {Key: "gpus", Held: 1},
	} {
		keys[lock] = &k
	}
	all := bySemaphore(keys)
	want := v1alpha1.SemaphoreStatus{Held: 5, Queued: 2, Keys: 4, Busiest: []v1alpha1.KeyStatus{{Key: "c", Queued: 2}, {Key: "d", Held: 3}, {Key: "a", Held: 1}, {Key: "b", Held: 1}}}
	if diff := cmp.Diff(want, statusOf(all["gpus"])); diff != "" || len(all) != 2 {
		t.Errorf("%d semaphores; want -, got +\n%s", len(all), diff)
	}
	if diff := cmp.Diff(v1alpha1.SemaphoreStatus{}, statusOf(all["unused"])); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// A run may have permits of keys of its own choice, 100,000 of each: together they may be more than
// status can say.
//
// mutation: a sum that is not cut makes this fail: the API server refuses what is negative.
func TestWhatASemaphoreHoldsIsCutAtWhatItsStatusCanSay(t *testing.T) {
	half := v1alpha1.KeyStatus{Held: 1 << 30, Queued: 1 << 30}
	st := statusOf([]v1alpha1.KeyStatus{half, half, half})
	if st.Held != math.MaxInt32 || st.Queued != math.MaxInt32 {
		t.Errorf("%d held, %d queued", st.Held, st.Queued)
	}
}

// mutation: lookAgain that ends after its first page knows no semaphore of the others, and their
// rings stay for ever.
func TestARingByWayOfASemaphoreOfALaterPageIsFound(t *testing.T) {
	s := newSite(t)
	var sems []string
	for _, name := range []string{"-a", "-b", "-c"} {
		sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: s.ns + name}, Spec: v1alpha1.SemaphoreSpec{Permits: 1}}
		must(t, s.client.Create(t.Context(), sem))
		sems = append(sems, sem.Name+"/")
	}
	r := s.replica()
	must(t, r.Resync(t.Context()))
	first, second := s.run("first", nil), s.run("second", nil)
	r.asks(first, "", sems[1], store.LocksHeld)
	r.asks(second, "", sems[2], store.LocksHeld)
	r.asks(first, "a", sems[2], store.LocksWaiting)
	r.asks(second, "a", sems[1], store.LocksWaiting)
	r.live = onebyone.From(r.live)
	must(t, r.Resync(t.Context()))
	snapshot, err := r.store.SnapshotLocks(t.Context())
	must(t, err)
	refused := 0
	for _, w := range snapshot.Waiters {
		if w.Refused == store.LocksDeadlock {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d steps are refused, want 1", refused)
	}
}

// mutation: a restore that ends at the first run that is doubted.
func TestARunThatIsDoubtedKeepsNoHoldFromOthers(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	v, tickets := &view{runs: map[types.UID]fact{}}, []string(nil)
	for i, name := range []string{"a", "b", "c"} {
		run := s.run(name, nil)
		run.Status = &v1alpha1.WorkflowRunStatus{Locks: []v1alpha1.LockHold{{Name: "mutex:" + s.ns + "/" + name, Permits: 1, Fence: int64(i) + 1}}}
		must(t, s.client.Status().Update(t.Context(), run))
		v.runs[run.UID], tickets = factOf(run), append(tickets, string(run.UID))
	}
	r.live = interceptor.NewClient(s.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name != "b" {
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), key.Name)
		}
		return c.Get(ctx, key, o, opts...)
	}})
	done := make(chan error, 1)
	go func() { done <- r.restore(t.Context(), v, tickets) }()
	s.until("the holds are restored", func() bool {
		select {
		case err := <-done:
			if !errors.Is(err, resyncs.ErrDoubted) {
				t.Errorf("%v; want a doubt", err)
			}
			return true
		default:
			if s.clock.HasWaiters() {
				s.clock.Step(100 * time.Millisecond)
			}
			return false
		}
	})
	if n := testutil.ToFloat64(r.metrics.missing); n != 1 {
		t.Errorf("%v holds were missing; want that of b", n)
	}
}
