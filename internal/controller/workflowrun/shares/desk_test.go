// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var errTest = errors.New("the test wants it")

func newTestDesks(clk *clocktesting.FakeClock) (*Desks, *Turns) {
	turns := NewTurns(2, KindMetrics{}, func(types.NamespacedName) {})
	return NewDesks(Room{1, 1}, turns, clk, KindMetrics{}), turns
}

// mutation: a rest though nobody else is there; none though another is; one that is as long as the
// desk was had without the bound.
func TestADeskStaysEmptyAsLongAsItWasHadIfOthersArePresent(t *testing.T) {
	for name, c := range map[string]struct {
		other string
		ago   time.Duration // of the other's last pass, from when the desk was had
		had   time.Duration
		rest  time.Duration
	}{
		"another tenant":           {"b", 0, 100 * time.Millisecond, 100 * time.Millisecond},
		"the same tenant":          {"a", 0, 100 * time.Millisecond, 0},
		"another, a while ago":     {"b", 2 * maxRest, 100 * time.Millisecond, 0},
		"another, for a long time": {"b", 0, time.Minute, maxRest},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
			desks, turns := newTestDesks(clk)
			turns.See(c.other, clk.Now())
			clk.Step(c.ago)
			turns.See("a", clk.Now())
			d := desks.For("a")
			if !d.SitDown(t.Context()) {
				t.Fatal("there is no desk")
			}
			clk.Step(c.had)
			d.StandUp()
			next := desks.places.Take("a", func() {})
			if desks.places.Has(next) != (c.rest == 0) {
				t.Fatalf("the desk is had again at once: %t", desks.places.Has(next))
			}
			clk.Step(c.rest - time.Millisecond)
			if c.rest > 0 && desks.places.Has(next) {
				t.Error("the desk is had again too early")
			}
			clk.Step(time.Millisecond)
			if !desks.places.Has(next) {
				t.Error("the desk is not had again")
			}
		})
	}
}

// mutation: GoOn without a desk, beyond maxStay, without its rest, or with one though nobody else
// is there; a rest after all of a stay, and not after the work since the last one.
func TestAPassGoesOnAtItsDeskForAWhile(t *testing.T) {
	for _, other := range []bool{false, true} {
		clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
		desks, turns := newTestDesks(clk)
		if other {
			turns.See("b", clk.Now())
		}
		turns.See("a", clk.Now())
		d := desks.For("a")
		if d.GoOn(t.Context()) {
			t.Fatal("it goes on without a desk")
		}
		if !d.SitDown(t.Context()) {
			t.Fatal("there is no desk")
		}
		worked := 0 * time.Second
		for ; d.goesOnAfter(t, clk, maxStay/10, other); worked += maxStay / 10 {
			if worked > maxStay {
				t.Fatal("it goes on for ever")
			}
		}
		if want := maxStay * 9 / 10; !other && worked != want {
			t.Errorf("it worked for %s and once more, want %s", worked, want)
		} else if want := maxStay / 2; other && worked != want {
			t.Errorf("beside others it worked for %s and once more, want %s", worked, want)
		}
		d.StandUp()
		next := desks.places.Take("a", func() {})
		if desks.places.Has(next) != !other {
			t.Errorf("the desk is had again at once: %t", desks.places.Has(next))
		}
		if clk.Step(maxStay / 10); !desks.places.Has(next) {
			t.Error("the desk rests for longer than the last work took")
		}
	}
}

// goesOnAfter works for a while, and says whether the pass goes on, after a rest of the same length
// if that is wanted.
func (d *Desk) goesOnAfter(t *testing.T, clk *clocktesting.FakeClock, work time.Duration, rests bool) bool {
	t.Helper()
	clk.Step(work)
	went := make(chan bool)
	go func() { went <- d.GoOn(t.Context()) }()
	for {
		select {
		case on := <-went:
			if rests && on {
				t.Fatal("it goes on without a rest")
			}
			return on
		default:
		}
		if clk.HasWaiters() {
			if !rests {
				t.Fatal("it rests though nobody else is there")
			}
			clk.Step(work)
			return <-went
		}
		runtime.Gosched()
	}
}

// What a pass does at the same time rests together, and once.
//
// mutation: Rest without a desk, before workBetween, or though nobody else is there; one that two
// take one after the other; work that is not counted anew after a rest.
func TestWhatTakesLongRestsInBetween(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	desks, turns := newTestDesks(clk)
	d := desks.For("a")
	d.Rest(t.Context()) // without a desk
	if !d.SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	clk.Step(workBetween)
	d.Rest(t.Context()) // nobody else is there
	turns.See("b", clk.Now())
	clk.Step(workBetween - time.Nanosecond)
	d.Rest(t.Context())              // too early
	desks.For("c").Rest(t.Context()) // without a desk, and somebody is there
	clk.Step(workBetween)
	const together = 2
	rested := make(chan struct{})
	for range together {
		go func() {
			d.Rest(t.Context())
			rested <- struct{}{}
		}()
	}
	for !clk.HasWaiters() {
		runtime.Gosched()
	}
	select {
	case <-rested:
		t.Fatal("one does not rest")
	default:
	}
	clk.Step(2*workBetween - time.Nanosecond)
	for range together {
		<-rested
	}
	clk.Step(workBetween - time.Nanosecond)
	d.Rest(t.Context()) // too early again
	clk.Step(time.Second)
	turns.See("b", clk.Now())
	go func() {
		d.Rest(t.Context())
		rested <- struct{}{}
	}()
	for !clk.HasWaiters() {
		runtime.Gosched()
	}
	clk.Step(maxPause)
	<-rested // though it worked for longer
}

// mutation: Rest, SitDown or need that does not end with ctx, or with Until, waits for ever, or
// says another cause; GoOn after that.
func TestWhatIsWaitedForEndsWithThePass(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for name, with := range map[string]func(d *Desk) context.Context{
		"ctx": func(*Desk) context.Context { return ended },
		"until": func(d *Desk) context.Context {
			d.Until(ended)
			return t.Context()
		},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
			desks, turns := newTestDesks(clk)
			turns.See("b", clk.Now())
			d := desks.For("a")
			if !d.SitDown(t.Context()) {
				t.Fatal("there is no desk")
			}
			clk.Step(workBetween)
			ctx := with(d)
			d.Rest(ctx)
			if d.GoOn(ctx) {
				t.Error("it goes on")
			}
			waits := desks.For("c")
			if err := waits.ForOutputs(with(waits), smallOutputs+1); !errors.Is(err, errTest) {
				t.Errorf("it does not wait for a desk: %v", err)
			}
		})
	}
}

// mutation: a rest that does not end with ctx waits for ever; one after which the pass goes on.
func TestAPassThatEndsDuringItsRestGoesOnNoMore(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	desks, turns := newTestDesks(clk)
	turns.See("b", clk.Now())
	d := desks.For("a")
	if !d.SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	clk.Step(maxStay / 10)
	ctx, cancel := context.WithCancelCause(t.Context())
	went := make(chan bool)
	go func() { went <- d.GoOn(ctx) }()
	for !clk.HasWaiters() {
		runtime.Gosched()
	}
	cancel(errTest)
	if <-went {
		t.Error("it goes on")
	}
}

// mutation: GoOn without its look at ctx.
func TestAPassThatEndsGoesOnNoMore(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	desks, _ := newTestDesks(clk)
	d := desks.For("a")
	if !d.SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if d.GoOn(ctx) {
		t.Error("it goes on")
	}
}

// mutation: ForObject, or ForOutputs, without the look at the size makes this fail.
func TestWhatIsLargeNeedsADesk(t *testing.T) {
	desks, _ := newTestDesks(clocktesting.NewFakeClock(time.Unix(1000, 0)))
	if !desks.For("a").SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"a small object":       {desks.For("b").ForObject(ctx, largeObject), nil},
		"a large object":       {desks.For("b").ForObject(ctx, largeObject+1), errTest},
		"outputs that are few": {desks.For("b").ForOutputs(ctx, smallOutputs), nil},
		"large outputs":        {desks.For("b").ForOutputs(ctx, smallOutputs+1), errTest},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
}

// mutation: SitDown without yields, yields without Others, or one that is not over when its time
// is; TakeOver that begins anew each time.
func TestWhoTakesOverLeavesItsDesksEmptyForAMoment(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	desks, turns := newTestDesks(clk)
	sits := func(want bool) {
		t.Helper()
		d, sat := desks.For("a"), make(chan bool, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { sat <- d.SitDown(ctx) }()
		for !want && !clk.HasWaiters() {
			if len(sat) > 0 {
				t.Fatal("it sits down at once")
			}
			runtime.Gosched()
		}
		if !want {
			cancel()
		}
		if got := <-sat; got != want {
			t.Fatalf("it sits down: %t", got)
		}
		d.StandUp()
	}
	desks.TakeOver()
	turns.See("a", clk.Now())
	sits(true) // nobody else wants a pass
	turns.See("b", clk.Now())
	sits(false)
	clk.Step(takingOver - time.Millisecond)
	desks.TakeOver() // of the next partition
	sits(false)
	clk.Step(time.Millisecond)
	sits(true)
	clk.Step(takingOver)
	desks.TakeOver()
	turns.See("b", clk.Now())
	sits(false)
}

// mutation: restDue that does not look at who waits, or who is in line, makes this fail, or that
// counts wrongly.
func TestADeskRestsNoLongerThanItWorksWhereManyWaitForIt(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	turns := NewTurns(2, KindMetrics{}, func(types.NamespacedName) {}).WithAside(0, KindMetrics{})
	desks := NewDesks(Room{1, 3}, turns, clk, KindMetrics{})
	d := desks.For("a")
	if !d.SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	turns.See("b", clk.Now())
	const work = 100 * time.Millisecond
	clk.Step(work)
	for n := range fewWait + 2 {
		want := 3 * work
		if n > fewWait {
			want = work
		}
		if got := d.restDue(); got != want {
			t.Errorf("with %d that wait it rests %s, want %s", n, got, want)
		}
		if n%2 == 0 {
			desks.places.Take(string(rune('b'+n)), func() {})
			continue
		}
		pass, _ := turns.Enter(types.NamespacedName{Namespace: "c", Name: string(rune('b' + n))})
		pass.stepAside(true)
		turns.Release(pass)
	}
}

// Of two cores one is left to passes that need no desk, and most of it while they want it.
func TestDesksLeaveMostCores(t *testing.T) {
	for cores, want := range map[int]Room{1: {1, 7}, 2: {1, 3}, 4: {2, 3}, 8: {2, 1}, 16: {2, 0}, 64: {2, 0}} {
		if got := roomOn(cores); got != want {
			t.Errorf("%+v on %d cores, want %+v", got, cores, want)
		}
	}
}

// mutation: Work that keeps its desk, that takes none, or that does not say why it has none.
func TestDesks_WorkThatIsNoPass(t *testing.T) {
	d, _ := newTestDesks(clocktesting.NewFakeClock(time.Unix(1000, 0)))
	rest, leave, err := d.Work(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	rest()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if _, _, err := d.Work(ended, "b"); !errors.Is(err, errTest) {
		t.Errorf("while somebody has it: %v", err)
	}
	leave()
	if _, leave, err = d.Work(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	leave()
}

// mutations: Yield that keeps the desk for as long as others wait, that gives it up while nobody
// does, or that goes on without it.
func TestADeskIsLeftToOthersAfterASecond(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	desks, _ := newTestDesks(clk)
	ctx, cancel := context.WithCancelCause(t.Context())
	a := desks.For("a")
	if !a.Yield(ctx) || a.Has() {
		t.Error("a quick pass has a desk now, or is to end")
	}
	a.SitDown(ctx)
	clk.Step(2 * maxStay)
	if !a.Yield(ctx) || !a.Has() {
		t.Error("it is left though nobody waits")
	}
	over, end := context.WithCancel(t.Context())
	end()
	if c := desks.For("a"); a.Yield(over) || a.Has() || !c.SitDown(t.Context()) {
		t.Error("who has no more time keeps the desk")
	} else {
		a = c
	}
	had := make(chan bool)
	go func() { had <- desks.For("b").SitDown(t.Context()) }()
	for desks.places.Waiting() == 0 {
		runtime.Gosched()
	}
	cancel(errTest)
	if a.Yield(ctx) || a.Has() {
		t.Error("it goes on though others wait")
	}
	if !<-had {
		t.Error("who waited has no desk")
	}
}
