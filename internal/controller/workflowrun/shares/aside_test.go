// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// office is a process whose workers make passes over runs, by the time of its bubble.
type office struct {
	t                   *testing.T
	places, aside, room int
	queue               workqueue.TypedInterface[types.NamespacedName]
	turns               *Turns
	desks               *Desks
	workers             sync.WaitGroup

	mu      sync.Mutex
	kinds   map[types.NamespacedName]visit
	left    map[types.NamespacedName]int // passes that are to be made
	passes  int                          // that are under way
	seated  int
	refused int // passes that ended as their run is in line
}

// visit is what passes over a run do.
type visit struct {
	large    bool
	stays    bool          // it is not to end before it has its desk
	patience time.Duration // after which its context ends; 0: never
	at       time.Duration // how long it is at its desk
	yields   int           // how often it leaves that to others in between
}

// quick is how long a pass takes that needs no desk.
const quick = workBetween

// open has the workers begin that a controller of these places has.
func open(t *testing.T, places, aside, desks int) *office {
	t.Helper()
	o := &office{
		t: t, places: places, aside: aside, room: desks, queue: workqueue.NewTyped[types.NamespacedName](),
		kinds: map[types.NamespacedName]visit{}, left: map[types.NamespacedName]int{},
	}
	o.turns = NewTurns(places, KindMetrics{}, o.queue.Add).WithAside(aside, KindMetrics{})
	o.desks = NewDesks(Room{desks, 1}, o.turns, clock.RealClock{}, KindMetrics{})
	for range places + aside + 1 {
		o.workers.Go(func() {
			for {
				key, over := o.queue.Get()
				if over {
					return
				}
				o.reconcile(key)
				o.queue.Done(key)
			}
		})
	}
	return o
}

func freeOf(s *Shares) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// want has so many passes made over a run.
func (o *office) want(key types.NamespacedName, n int, v visit) {
	o.mu.Lock()
	o.kinds[key], o.left[key] = v, n
	o.mu.Unlock()
	o.queue.Add(key)
}

// close waits until nothing is left to do, and says whether all places are free then.
func (o *office) close(t *testing.T) {
	t.Helper()
	time.Sleep(time.Hour)
	o.mu.Lock()
	if len(o.left) > 0 || o.passes > 0 {
		t.Errorf("these have passes to be made: %v; %d are under way", o.left, o.passes)
	}
	o.mu.Unlock()
	o.queue.ShutDown()
	o.workers.Wait()
	time.Sleep(time.Hour) // the queue has its own, and desks may be left later
	if free, aside := freeOf(o.turns.shares), freeOf(o.turns.aside); free != o.places || aside != o.aside || o.turns.aside.Waiting()+o.turns.shares.Waiting()+len(o.turns.inLine) > 0 {
		t.Errorf("at the end %d of %d places are free, and %d of %d aside; in line: %v", free, o.places, aside, o.aside, o.turns.inLine)
	}
	if free := freeOf(o.desks.places); free != o.room {
		t.Errorf("at the end %d of %d desks are free", free, o.room)
	}
}

// reconcile makes a pass as the controller does.
func (o *office) reconcile(key types.NamespacedName) {
	o.turns.See(key.Namespace, time.Now())
	turn, may := o.turns.Enter(key)
	if !may {
		return
	}
	defer o.turns.Release(turn)
	o.count(&o.passes, 1)
	defer o.count(&o.passes, -1)
	o.mu.Lock()
	v, n := o.kinds[key], o.left[key]
	o.mu.Unlock()
	if n == 0 {
		return // it was woken for nothing
	}
	time.Sleep(quick)
	if v.large && !o.visit(turn, v) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left[key]--; o.left[key] == 0 {
		delete(o.left, key)
		return
	}
	o.queue.Add(key)
}

// visit works at a desk, and says whether the pass came to its end by that.
func (o *office) visit(turn *Pass, v visit) (done bool) {
	ctx, cancel := context.WithCancel(context.Background())
	if v.patience > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), v.patience)
	}
	defer cancel()
	d := o.desks.For(turn.key.Namespace)
	d.From(turn)
	defer d.StandUp()
	if v.stays {
		d.Stay()
	}
	if !d.SitDown(ctx) {
		if d.InLine() {
			o.count(&o.refused, 1)
		}
		return !d.InLine()
	}
	o.count(&o.seated, 1)
	time.Sleep(v.at)
	o.count(&o.seated, -1)
	for range v.yields {
		if !d.Yield(ctx) {
			return true
		}
		o.count(&o.seated, 1)
		time.Sleep(v.at)
		o.count(&o.seated, -1)
	}
	return true
}

// count has what is counted never be more than there is room for.
func (o *office) count(what *int, by int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*what += by
	if o.passes > o.places+o.aside || o.seated > o.room {
		o.t.Errorf("%d passes are under way, %d of them at desks", o.passes, o.seated)
	}
}

func run(namespace, name int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("ns-%d", namespace), Name: fmt.Sprintf("run-%d", name)}
}

// Large runs of 16 namespaces want all desks, for as long as they like: the small run of another
// one has a place at once, each time. Whether their passes may end before they have their desk, or
// only those of some namespaces.
//
// mutations: SitDown without StepAside; stepAside that keeps the place of a pass that has one
// aside, that has those wait which may end, or that does not note whose run is in line; Enter that
// asks for another place for a run that is in line.
func TestWhoWaitsForADeskLeavesItsPlaceToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces, runs, passes = 16, 5, 3
		o := open(t, 16, Aside, 1)
		for n := range namespaces * runs {
			o.want(run(n%namespaces, n), passes, visit{large: true, at: 200 * time.Millisecond, yields: n % 2 * 10})
		}
		for i := range 100 {
			time.Sleep(50*time.Millisecond + time.Microsecond)
			if turn, may := o.turns.Enter(run(namespaces, 1)); may {
				o.turns.Release(turn)
			} else {
				t.Errorf("the small run has to wait, the %d. time", i)
				break
			}
		}
		o.close(t)
		if o.refused == 0 {
			t.Error("none was in line")
		}
	})
}

// mutations: New of places aside that spares none; stepAside that takes a place aside though one
// has it, or that leaves a request of a pass that stays; Enter that has who was in line wait for a
// place for passes; Release that gives a place of the other kind back.
func TestFewPassesStandAsideAndTheOthersAreInLine(t *testing.T) {
	var woken []types.NamespacedName
	turns := NewTurns(16, KindMetrics{}, func(key types.NamespacedName) { woken = append(woken, key) }).WithAside(2, KindMetrics{})
	enter := func(key types.NamespacedName) *Pass {
		t.Helper()
		pass, may := turns.Enter(key)
		if !may {
			t.Fatalf("%s may not come in", key)
		}
		return pass
	}
	used := func(passes, aside, inLine int) {
		t.Helper()
		if got := 16 - turns.shares.free; got != passes {
			t.Errorf("%d places are used, want %d", got, passes)
		}
		if got := 2 - turns.aside.free; got != aside {
			t.Errorf("%d are aside, want %d", got, aside)
		}
		if got := turns.standInLine(); got != inLine || len(turns.inLine) != inLine {
			t.Errorf("%d are in line, %d are noted, want %d", got, len(turns.inLine), inLine)
		}
	}
	first := enter(run(1, 1))
	for range 2 { // the second time it has its place aside
		if first.stepAside(true) {
			t.Fatal("the first is to end")
		}
	}
	used(0, 1, 0)
	second := enter(run(1, 2))
	if !second.stepAside(true) {
		t.Fatal("a namespace has more than half")
	}
	turns.Release(second)
	other := enter(run(2, 1))
	if other.stepAside(true) {
		t.Fatal("one of another namespace is to end")
	}
	third := enter(run(3, 1))
	if !third.stepAside(true) {
		t.Fatal("more are aside than may be")
	}
	turns.Release(third)
	stays := enter(run(4, 1))
	if stays.stepAside(false) {
		t.Fatal("one that must not end is to")
	}
	used(1, 2, 2)
	if _, may := turns.Enter(run(3, 1)); may {
		t.Error("a run that is in line comes in")
	}
	turns.Release(first)
	if !slices.Equal(woken, []types.NamespacedName{run(3, 1)}) {
		t.Fatalf("woken: %v", woken)
	}
	third = enter(run(3, 1))
	used(1, 2, 1)
	if third.stepAside(true) {
		t.Error("one that has its place is to end")
	}
	for _, pass := range []*Pass{third, other, stays} {
		turns.Release(pass)
	}
	turns.Release(enter(run(1, 2))) // and needs no desk, this time
	used(0, 0, 0)
}

// mutations: SitDown that waits, or StepAside that says nothing, though the pass is in line; need
// without its look at that waits for the end of the pass; Stay that does nothing; From that does
// not let it end.
func TestAPassWhoseRunIsInLineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(16, KindMetrics{}, func(types.NamespacedName) {}).WithAside(1, KindMetrics{})
		desks := NewDesks(Room{1, 1}, turns, clock.RealClock{}, KindMetrics{})
		sits := func(ns int) (d *Desk) {
			pass, _ := turns.Enter(run(ns, 1))
			d = desks.For(pass.key.Namespace)
			d.From(pass)
			return d
		}
		if d := sits(1); !d.SitDown(t.Context()) || d.InLine() {
			t.Fatal("the first has no desk")
		}
		ends := sits(2)
		for range 2 {
			if err := ends.ForOutputs(t.Context(), smallOutputs+1); !errors.Is(err, ErrInLine) || !ends.InLine() || ends.SitDown(t.Context()) || !errors.Is(ends.StepAside(), ErrInLine) {
				t.Errorf("it does not end: %v", err)
			}
		}
		stays := sits(3)
		stays.Stay()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if begin := time.Now(); stays.StepAside() != nil || stays.SitDown(ctx) || stays.InLine() || time.Since(begin) != time.Second {
			t.Errorf("one that stays is to end, or does not wait: %s", time.Since(begin))
		}
	})
}

// mutation: SitDown that does not step aside before it waits for what TakeOver says.
func TestWhoTakesOverLeavesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 16
		o := open(t, namespaces, Aside, 1)
		o.desks.TakeOver()
		o.turns.See("ns-others", time.Now())
		for n := range namespaces {
			o.want(run(n, 1), 1, visit{large: true, at: time.Millisecond})
		}
		time.Sleep(takingOver / 2)
		if free := freeOf(o.turns.shares); free != namespaces {
			t.Errorf("large runs have all places but %d", free)
		}
		o.close(t)
	})
}

// Whatever passes do, at most so many are under way as there are places, all come to their end, and
// all places are free then. If one waited for another in a ring, the bubble would find it.
//
// mutations: stepAside that does not give the place for passes back; StepAside that forgets that
// the run is in line; Enter that leaves a run in line that has its place.
func TestPassesThatNeedDesksComeToTheirEnd(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			o := open(t, 1+rng.IntN(6), 1+rng.IntN(4), 1+rng.IntN(maxDesks))
			if seed%3 == 0 {
				o.desks.TakeOver()
			}
			namespaces := 1 + rng.IntN(6)
			for n := range 40 {
				v := visit{large: rng.IntN(3) > 0, stays: rng.IntN(3) == 0, at: time.Duration(rng.IntN(int(2 * time.Second))), yields: rng.IntN(4)}
				if rng.IntN(3) == 0 {
					v.patience = 1 + time.Duration(rng.IntN(int(3*time.Second)))
				}
				o.want(run(rng.IntN(namespaces), n), 1+rng.IntN(3), v)
				time.Sleep(time.Duration(rng.IntN(int(20 * time.Millisecond))))
			}
			o.close(t)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}
