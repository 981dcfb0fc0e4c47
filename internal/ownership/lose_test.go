// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// slow implements Handler: the work of partition 2 does not end in time.
type slow struct {
	calls
	during func()
}

func (s slow) Lose(ctx context.Context, _ []int, ended func([]int)) {
	ended([]int{1})
	s.during()
	<-ctx.Done()
}

// mutation: lose that notes an end only when all have ended, or that notes one again at the end,
// makes this fail: by then the partition may be this member's again.
func TestKeeper_APartitionIsHandedOnBeforeTheRestHasEnded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var first, again, second context.Context
	var k *Keeper
	s := slow{during: func() {
		select {
		case <-first.Done():
		case <-time.After(10 * time.Second):
			t.Error("the work of the partition that has ended goes on")
		}
		if second.Err() != nil {
			t.Errorf("of the other partition %v", second.Err())
		}
		k.mu.Lock()
		again, _ = k.users.add(t.Context(), &k.mu, 1, true)
		k.mu.Unlock()
		stop()
	}}
	k = New(Options{Member: "me", Handler: s, Clock: clock.RealClock{}, Log: logr.Discard(), Timing: Timing{Drain: time.Hour}})
	first, _ = k.users.add(t.Context(), &k.mu, 1, true)
	second, _ = k.users.add(t.Context(), &k.mu, 2, true)
	k.lose(ctx, order{partitions: []int{1, 2}})
	if second.Err() == nil {
		t.Error("the work that did not end in time goes on")
	}
	if again.Err() != nil {
		t.Error("what began anew ended")
	}
}

// waits implements Handler: the work of partition 1 does not end before ctx does.
type waits struct {
	calls
	called chan []int
}

func (w waits) Lose(ctx context.Context, partitions []int, ended func([]int)) {
	w.called <- partitions
	if partitions[0] == 1 {
		<-ctx.Done()
		return
	}
	ended(partitions)
}

// mutation: work that waits for a Lose before the next order makes this hang, and one that does not
// count it as under way makes it fail.
func TestKeeper_NoOrderWaitsForAnother(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	w := waits{called: make(chan []int)}
	k := New(Options{Member: "me", Handler: w, Clock: clock.RealClock{}, Log: logr.Discard(), Timing: Timing{Drain: time.Hour}})
	k.hands.add(nil, []int{1}, 0)
	k.hands.add(nil, []int{3}, 0)
	over := make(chan struct{})
	go func() {
		defer close(over)
		k.work(ctx)
	}()
	<-w.called
	<-w.called
	for waits := false; !waits; { // for another order
		k.hands.mu.Lock()
		waits = k.hands.idle
		k.hands.mu.Unlock()
		runtime.Gosched()
	}
	if k.hands.isIdle() {
		t.Error("it is idle while the work of a partition ends")
	}
	stop()
	<-over
	if k.hands.losing > 0 {
		t.Errorf("%d calls are under way after all have returned", k.hands.losing)
	}
}

// clings is a fellow of whose partitions the work of the first ones does not end before ctx does.
type clings struct {
	*fellow
	to int
}

func (c clings) Lose(ctx context.Context, partitions []int, ended func([]int)) {
	rest := slices.DeleteFunc(slices.Clone(partitions), func(p int) bool { return p < c.to })
	c.fellow.Lose(ctx, rest, ended)
	if len(rest) < len(partitions) {
		<-ctx.Done()
	}
}

// given is a fellow that is to be given all by hand-over.
type given struct{ *fellow }

func (g given) TakeOver(ctx context.Context, partitions []int) {
	g.w.t.Errorf("%v were left behind, and stood still for the whole of the Lease", partitions)
	g.fellow.TakeOver(ctx, partitions)
}

// heir starts a member that is to be given all by hand-over.
func (w *world) heir(name string) *fellow {
	f := w.newFellow(name, func(o *Options) {
		f, _ := o.Handler.(*fellow)
		o.Handler = given{f}
	})
	f.run()
	return f
}

// owner starts member a with a Handler, and waits until it owns all.
func (w *world) owner(handler func(*fellow) Handler) *fellow {
	w.t.Helper()
	w.unowned()
	a := w.newFellow("a", func(o *Options) {
		f, _ := o.Handler.(*fellow)
		o.Handler = handler(f)
	})
	a.run()
	w.eventually("it owns all", func() bool { return a.count() == Partitions })
	return a
}

// A rollout ends replicas in the middle of what takes long, such as the write of a large object:
// the other runs of its partition do not wait for the end of a Lease.
//
// mutations: a Drain of a whole Lease, and who leaves by chunks make this fail.
func TestWhoLeavesHandsOnWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timing = Timing{Lease: 6 * time.Second, Renew: 500 * time.Millisecond, Look: 250 * time.Millisecond, Settle: time.Hour, Stop: 4 * time.Second}
	a := w.owner(func(f *fellow) Handler { return clings{f, 30} })
	b := w.heir("b")
	w.there(b)
	a.end()
	w.eventually("the other owns all", func() bool { return b.count() == Partitions })
}

// deafens is a fellow that cannot list the members once work has begun to end.
type deafens struct{ *fellow }

func (d deafens) Lose(ctx context.Context, partitions []int, ended func([]int)) {
	d.deaf.Store(1 << 30)
	d.fellow.Lose(ctx, partitions, ended)
}

// The API server answers a list from its cache, once that is as new as the request: it may take a
// tenth of a second to find out. Nobody waits for that while a partition has no owner.
//
// mutations: move without a fresh list, and giveable that asks for a list of after the end of the
// work make this fail.
func TestNobodyWaitsForAListWhileAPartitionHasNoOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timing = Timing{Lease: 6 * time.Second, Renew: 500 * time.Millisecond, Look: 250 * time.Millisecond, Settle: time.Hour, Fresh: time.Minute}
	a := w.owner(func(f *fellow) Handler { return deafens{f} })
	b := w.heir("b")
	w.there(b)
	a.end()
	w.eventually("the other owns all", func() bool { return b.count() == Partitions })
}

// mutation: looks that waits for the next round after a failure makes this fail.
func TestWhoLeavesTriesAgainAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timing = Timing{Lease: 6 * time.Second, Renew: 500 * time.Millisecond, Look: 4 * time.Second, Settle: time.Hour, Stop: 8 * time.Second}
	a := w.owner(func(f *fellow) Handler { return f })
	b := w.heir("b")
	w.there(b)
	a.deaf.Store(6)
	a.end()
	w.eventually("the other owns all", func() bool { return b.count() == Partitions })
}

// outlives is a fellow whose work does not end before that of another one.
type outlives struct {
	*fellow
	other *fellow
}

func (o outlives) Lose(ctx context.Context, partitions []int, ended func([]int)) {
	o.other.end()
	o.fellow.Lose(ctx, partitions, ended)
}

// mutation: leave that is over at once where there is nothing to hand on makes this fail.
func TestNothingIsGivenToWhoHasJustLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timing = Timing{Lease: 6 * time.Second, Renew: 500 * time.Millisecond, Look: 250 * time.Millisecond, Settle: time.Hour, Fresh: 500 * time.Millisecond}
	b := w.newFellow("b", nil)
	a := w.owner(func(f *fellow) Handler { return outlives{f, b} })
	b.run()
	c := w.heir("c")
	w.there(b, c)
	a.end()
	w.eventually("the other owns all", func() bool { return c.count() == Partitions })
}

// mutation: await that makes a ticker of a bound that is over panics.
func TestKeeper_WhoWasPausedWhileItLeavesEndsAtOnce(t *testing.T) {
	k := New(Options{Member: "me", Clock: clock.RealClock{}, Log: logr.Discard()})
	if k.await(t.Context(), -time.Second, func() bool { return false }) {
		t.Error("it says that it is done")
	}
}

// What ends within a moment is one write: each takes longer than most partitions do to end.
// mutations: gather that notes each call by itself, or that waits for the lull though all have
// ended, or for all, makes this hang; one that appends to what it was given makes it fail.
func TestWhatEndsWithinAMomentIsNotedTogether(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakeClock(time.Unix(100, 0))
	var noted atomic.Int32
	note := func(ended []int) { noted.Add(int32(len(ended))) }
	news, left := make(chan []int, 4), make(chan map[int]bool, 1)
	all := []int{1, 2, 3, 4, 5, 6}
	news <- all[:1]
	news <- all[2:4]
	go func() { left <- gather(now, news, all, note) }()
	for now.Waiters() != 3 { // for the bound, and for a lull after each call
		runtime.Gosched()
	}
	if n := noted.Load(); n != 0 {
		t.Errorf("%d are noted before the lull", n)
	}
	now.Step(lull)
	for noted.Load() != 3 {
		runtime.Gosched()
	}
	news <- all[1:2]
	news <- all[4:]
	for noted.Load() != 6 { // all have ended
		runtime.Gosched()
	}
	close(news)
	if late := <-left; len(late) > 0 {
		t.Errorf("late are %v", late)
	}
	if !slices.Equal(all, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("what the Handler gave is %v now", all)
	}
}

// mutation: another without the bound makes this hang.
func TestWhatEndsOneByOneIsNotGatheredForLong(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakeClock(time.Unix(100, 0))
	var noted atomic.Int32
	news := make(chan []int)
	go gather(now, news, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, func(ended []int) { noted.Add(int32(len(ended))) })
	news <- []int{1}
	for now.Waiters() < 2 { // for the bound and a lull
		runtime.Gosched()
	}
	for p := 2; noted.Load() == 0; p++ {
		select {
		case news <- []int{min(p, 8)}: // less than a lull after the one before
			now.Step(lull * 4 / 5)
		default:
			runtime.Gosched()
		}
	}
	close(news)
}
