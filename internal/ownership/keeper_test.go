// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// Members that come get a part, members that end hand theirs on, and at rest each writes its Lease
// and nothing else.
// mutation: a leave that ends at once makes the gaps too long.
func TestPartitionsFollowTheMembers(t *testing.T) {
	w := newWorld(t)
	a := w.join("a")
	w.eventually("the first owns all", divided(a))
	var wrong string
	for round := range 3 { // an API server that stands still for a moment spoils one
		if wrong = w.comeAndGo(a, round); wrong == "" {
			return
		}
		t.Logf("round %d: %s", round, wrong)
	}
	t.Error(wrong)
}

// comeAndGo has four members join a and end. It says what took too long, or was written too often.
func (w *world) comeAndGo(a *fellow, round int) (wrong string) {
	w.t.Helper()
	w.mu.Lock()
	w.gaps = nil
	w.mu.Unlock()
	var others []*fellow
	for _, name := range []string{"b", "c", "d", "e"} {
		others = append(others, w.join(fmt.Sprint(name, round)))
	}
	took := w.eventually("five have a part each", divided(append(others, a)...))
	w.t.Logf("1 -> 5 members: %v", took)
	before, at := a.writes.Load(), time.Now()
	time.Sleep(2 * w.timing.Lease)
	if n, most := a.writes.Load()-before, int64(2*time.Since(at)/w.timing.or().Renew); n > most {
		wrong = fmt.Sprintf("%d writes in %v at rest, want at most %d", n, time.Since(at), most)
	}
	for _, f := range others {
		f.end()
	}
	w.eventually("the first owns all again", divided(a))
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.gaps)
	p99 := w.gaps[len(w.gaps)*99/100]
	w.t.Logf("%d planned moves: p50 %v, p99 %v, longest %v", len(w.gaps), w.gaps[len(w.gaps)/2], p99, w.gaps[len(w.gaps)-1])
	if p99 > time.Second {
		wrong = fmt.Sprintf("p99 of the gaps is %v", p99)
	}
	return wrong
}

// A member that is cut off stops by itself before others take its partitions, and joins again.
// mutation: Owns that does not look at the clock makes this fail.
func TestWhoIsCutOffStops(t *testing.T) {
	w := newWorld(t)
	a, b := w.join("a"), w.join("b")
	w.eventually("both have a part", divided(a, b))
	mine := slices.IndexFunc(make([]struct{}, Partitions), func(struct{}) bool { return true })
	for !b.Owns(mine) {
		mine++
	}
	work, cancel := b.While(t.Context(), mine)
	defer cancel()
	b.cut.Store(true)
	took := w.eventually("the other owns all", divided(a))
	t.Logf("taken over after %v with a Lease of %v", took, w.timing.Lease)
	if b.count() > 0 || !errors.Is(context.Cause(work), ErrNotOwned) {
		t.Errorf("%d partitions are owned by who is cut off; its work: %v", b.count(), context.Cause(work))
	}
	if !a.Gone("b") {
		t.Error("the member that is cut off is not gone")
	}
	b.cut.Store(false)
	w.eventually("both have a part again", divided(a, b))
	if a.Gone("b") {
		t.Error("the member that is back is gone")
	}
}

// A member that is paused owns nothing while it is, and after it: its loops stand still here.
// mutation: validity that is not asked in Owns makes this fail.
func TestWhoIsPausedOwnsNothing(t *testing.T) {
	w := newWorld(t)
	a, b := w.join("a"), w.join("b")
	w.eventually("both have a part", divided(a, b))
	b.mu.Lock()
	w.eventually("the other owns all", divided(a))
	if n := b.count(); n > 0 {
		t.Errorf("owns %d partitions", n)
	}
	b.mu.Unlock()
	w.eventually("both have a part again", divided(a, b))
}

// object is the one object; nil: there is none.
func (w *world) object() *corev1.ConfigMap {
	w.t.Helper()
	var o corev1.ConfigMap
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: ObjectName}, &o); err != nil {
		return nil
	}
	return &o
}

// Who works goes on while the object is deleted, or edited by hand, and terms go on.
// mutation: remake without those that are acted on, or with terms from 1, makes this fail.
func TestAnObjectThatIsLostIsWrittenAnew(t *testing.T) {
	tests := map[string]func(w *world, o *corev1.ConfigMap) error{
		"deleted": func(w *world, o *corev1.ConfigMap) error { return w.client.Delete(w.t.Context(), o) },
		"garbage": func(w *world, o *corev1.ConfigMap) error {
			o.Data = map[string]string{dataKey: "{"}
			return w.client.Update(w.t.Context(), o)
		},
		"edited": func(w *world, o *corev1.ConfigMap) error {
			o.Data[dataKey] += " "
			return w.client.Update(w.t.Context(), o)
		},
		"empty": func(w *world, o *corev1.ConfigMap) error {
			o.Data = nil
			return w.client.Update(w.t.Context(), o)
		},
	}
	for name, lose := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a, b := w.join("a"), w.join("b")
			w.eventually("both have a part", divided(a, b))
			var before [Partitions]int64
			for p := range before {
				before[p] = a.Term(p)
			}
			version := w.object().ResourceVersion
			if err := lose(w, w.object()); err != nil {
				t.Fatal(err)
			}
			w.eventually("it is written anew", func() bool {
				o := w.object()
				if o == nil || o.ResourceVersion == version {
					return false
				}
				claims, err := Decode(o)
				return err == nil && !slices.ContainsFunc(claims, func(c Claim) bool { return c.Owner == "" })
			})
			w.eventually("both have a part", divided(a, b))
			for p := range before {
				if a.Term(p) < before[p] {
					t.Errorf("term of %d went from %d to %d", p, before[p], a.Term(p))
				}
			}
		})
	}
}

// Leases that are deleted or edited by hand cost time, and nothing else.
// mutation: a renewal that gives up when it meets a conflict makes this fail.
func TestALeaseThatIsChangedByHandComesBack(t *testing.T) {
	w := newWorld(t)
	a, b := w.join("a"), w.join("b")
	w.eventually("both have a part", divided(a, b))
	key := client.ObjectKey{Namespace: w.ns, Name: LeasePrefix + "b"}
	var lease coordinationv1.Lease
	if err := w.client.Get(t.Context(), key, &lease); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), &lease); err != nil {
		t.Fatal(err)
	}
	w.eventually("there is another Lease", func() bool {
		var again coordinationv1.Lease
		return w.client.Get(t.Context(), key, &again) == nil && again.UID != lease.UID
	})
	w.eventually("both have a part", divided(a, b))

	edited := false
	w.eventually("it can be edited", func() bool {
		if err := w.client.Get(t.Context(), key, &lease); err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity, lease.Labels = new("somebody"), nil
		edited = w.client.Update(t.Context(), &lease) == nil
		return edited
	})
	w.eventually("it is as it was", func() bool {
		err := w.client.Get(t.Context(), key, &lease)
		return err == nil && *lease.Spec.HolderIdentity == "b" && lease.Labels[LeaseLabel] == MemberLease
	})
	w.eventually("both have a part", divided(a, b))
}

// A process of another installation, or with another prefix, ends with an error.
// mutation: decode that does not compare the scope makes this fail.
func TestAnotherInstallationIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.join("a")
	w.eventually("the first owns all", divided(a))
	for name, change := range map[string]func(*Options){
		"installation": func(o *Options) { o.Installation = "elsewhere" },
		"prefix":       func(o *Options) { o.Prefix = "other" },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := w.newFellow("stranger", change).Start(ctx)
		cancel()
		if !errors.Is(err, ErrOtherInstallation) {
			t.Errorf("another %s: %v, want %v", name, err, ErrOtherInstallation)
		}
	}
	if err := w.newFellow("No Name", nil).Start(t.Context()); err == nil {
		t.Error("a name that no Lease can have is taken")
	}
	if !divided(a)() {
		t.Error("the first lost partitions")
	}
}

// While somebody holds leader election, members own nothing.
// mutation: accept or Propose without the look at Blocked makes this fail.
func TestTwoModesDoNotWorkTogether(t *testing.T) {
	w := newWorld(t)
	election := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "leader"}}
	election.Spec.HolderIdentity, election.Spec.LeaseDurationSeconds = new("old"), new(int32(5)) // so long that no hold comes too late
	if err := w.client.Create(t.Context(), election); err != nil {
		t.Fatal(err)
	}
	hold := func() {
		election.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if err := w.client.Update(t.Context(), election); err != nil {
			t.Error(err)
		}
	}
	a := w.newFellow("a", func(o *Options) { o.LeaderLease = "leader" })
	a.run()
	for began := time.Now(); time.Since(began) < 2*w.timing.Lease; time.Sleep(100 * time.Millisecond) {
		hold()
		if n := a.count(); n > 0 {
			t.Fatalf("owns %d partitions", n)
		}
	}
	w.eventually("it owns all once the Lease has ended", divided(a))
	w.eventually("it owns nothing when the other mode is back", func() bool { hold(); return a.count() == 0 })
	election.Spec.HolderIdentity = new("")
	hold()
	w.eventually("it owns all once the Lease is given up", divided(a))
}

// A member that is not fit gives its partitions to those that are; where none is, all stay.
// mutation: mark without Unfit makes this fail; so does elect without noneFit.
func TestWhoIsUnfitGivesItsPartitionsUp(t *testing.T) {
	w := newWorld(t)
	w.timing = quick.or()
	w.timing.Lease = 3 * time.Second // so long that few lose it here
	a, b := w.join("a"), w.join("b")
	w.eventually("both have a part", divided(a, b))
	b.unfit.Store(true)
	w.eventually("the other owns all", divided(a))
	a.unfit.Store(true)
	if moved := w.moves(owned(a, b), a, b); moved != "" {
		t.Errorf("partitions moved though no member is fit: %s", moved)
	}
	c := w.newFellow("c", nil)
	c.unfit.Store(true)
	c.run()
	if moved := w.moves(owned(a, b, c), a, b, c); moved != "" {
		t.Errorf("partitions moved to a member that was never fit: %s", moved)
	}
	for _, f := range []*fellow{a, b, c} {
		f.unfit.Store(false)
	}
	w.eventually("all have a part", divided(a, b, c))
}

// mutation: a member that is fit until Fit has failed for a Lease makes this fail.
func TestWhoWasNeverFitIsGivenNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timing = quick.or()
	w.timing.Lease = 3 * time.Second
	a := w.join("a")
	w.eventually("the first owns all", divided(a))
	b := w.newFellow("b", nil)
	b.unfit.Store(true)
	b.run()
	if moved := w.moves(divided(a), a, b); moved != "" {
		t.Errorf("it owns partitions: %s", moved)
	}
	b.unfit.Store(false)
	w.eventually("both have a part", divided(a, b))
}

// mutations: joined that is never stored, or that asks for a session now, makes this fail.
func TestWhoIsReadyHasJoined(t *testing.T) {
	t.Parallel()
	if k := New(Options{Member: "me", Clock: clock.RealClock{}, Log: logr.Discard()}); k.Joined() {
		t.Error("it has not even started")
	}
	d := newDesk(t)
	if !d.Joined() {
		t.Error("it has a session")
	}
	d.apply(func(m *rules.Member, _ rules.Time) { m.LeaseGone() })
	if !d.Joined() {
		t.Error("it is ready no more, though only its session has ended: the webhook would lose a replica")
	}
}

// timed is a clock that stands, and says how long its timers are.
type timed struct {
	*clocktesting.FakeClock
	timers chan time.Duration
}

func (c *timed) NewTimer(d time.Duration) clock.Timer {
	c.timers <- d
	return c.FakeClock.NewTimer(d)
}

// A Lease that is not renewed says no more that its member goes.
//
// mutation: leave that waits for that makes this fail.
func TestWhoMetANewerVersionAnnouncesNoEnd(t *testing.T) {
	stands := &timed{clocktesting.NewFakeClock(time.Unix(1e9, 0)), make(chan time.Duration, 2)}
	k := New(Options{Member: "a", Handler: &calls{}, Clock: stands, Spread: func() float64 { return 0.5 }, Log: logr.Discard()})
	k.newer.Store(true)
	ctx, end := context.WithCancel(t.Context())
	var leaves sync.WaitGroup
	leaves.Go(func() { k.leave(ctx) })
	defer leaves.Wait()
	defer end()
	for _, next := range []string{"the announcement", "the hand-over"} {
		select {
		case <-stands.timers:
		case <-time.After(patience):
			t.Fatal("it never waits for " + next)
		}
	}
}
