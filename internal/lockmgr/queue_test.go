// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// contenders are processes with waiters, who write down in which order they get the lock.
type contenders struct {
	b     *bubble
	mu    sync.Mutex
	order []string
}

// served is how many had the lock.
func (l *contenders) served() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

// contend has a waiter take the lock as soon as it may, hold it and release it.
func (l *contenders) contend(m *Manager, name string, hold time.Duration) {
	woken := make(chan struct{}, 1)
	r := request()
	r.Waiter, r.Wake = name, func() { woken <- struct{}{} }
	for {
		lease, err := m.Acquire(l.b.t.Context(), r)
		if err == nil {
			l.mu.Lock()
			l.order = append(l.order, name)
			l.mu.Unlock()
			if hold > 0 {
				<-time.After(hold)
			}
			lease.Release(l.b.t.Context())
			return
		}
		var busy *BusyError
		if !errors.As(err, &busy) || !busy.Queued {
			l.b.t.Errorf("%s: %v; want a place in line", name, err)
			return
		}
		select {
		case <-woken:
		case <-time.After(2 * time.Second): // whoever does not ask again gives up
		}
	}
}

// other is one more process, closed with the bubble.
func (b *bubble) other(t *testing.T) *Manager {
	t.Helper()
	return b.newManager(nil)
}

func closeAll(t *testing.T, all ...*Manager) {
	t.Helper()
	for _, m := range all {
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// mutation: passOn that never passes, and an offer that takes the last waiter, each make this fail.
func TestInsideAProcessTheLockGoesFromOneToTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		l := &contenders{b: b}
		var want []string
		for i := range 50 {
			want = append(want, strconv.Itoa(i))
			go l.contend(b.m, strconv.Itoa(i), 5*time.Millisecond)
			synctest.Wait() // so that the order is known
		}
		b.pass(50 * 5 * time.Millisecond)
		if diff := cmp.Diff(want, l.order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		b.pass(time.Second)
		if takes, releases := b.store.count("acquire", testRun), b.store.count("release", testRun); takes != 1 || releases != 1 {
			t.Errorf("%d takes and %d releases; want 1 of each", takes, releases)
		}
	})
}

// mutation: hear that forgets others, and maxPasses without a bound, each make this fail.
func TestBetweenProcessesNobodyIsStarved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second, third := b.other(t), b.other(t)
		defer closeAll(t, second, third)
		l := &contenders{b: b}
		for i := range 60 {
			go l.contend([]*Manager{b.m, second, third}[i/20], strconv.Itoa(i), 5*time.Millisecond)
			synctest.Wait()
		}
		b.pass(60 * 5 * time.Millisecond)
		if l.served() != 60 {
			t.Fatalf("after the time that all need one after the other, %d of 60 had the lock", l.served())
		}
		for i, at := range map[int]int{0: 0, 20: 11, 40: 22} { // the first of each process
			if got := index(l.order, strconv.Itoa(i)); got > at {
				t.Errorf("the first of process %d had its turn after %d others; want at most %d", i/20, got, at)
			}
		}
		if takes := b.store.count("acquire", testRun); takes > 60/4 {
			t.Errorf("%d takes for 60 turns", takes)
		}
	})
}

func index(list []string, s string) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return len(list)
}

// mutation: askLater without askTime makes this fail.
func TestANewsThatIsLostCostsASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second := b.other(t)
		defer closeAll(t, second)
		*b.store.deaf = true
		first := b.acquire(request())
		l := &contenders{b: b}
		go l.contend(second, "second", 0)
		synctest.Wait()
		first.Drop(t.Context())
		b.pass(time.Second)
		if l.served() != 1 {
			t.Error("the lock was free for a second, and nobody came")
		}
	})
}

// A process that has just begun waits for a lock before it listens.
// mutation: hear that does not ask at newsBegin, or forgets it for a run that is being taken, makes
// a case fail.
func TestNewsFromBeforeAProcessListensCostNoSecond(t *testing.T) {
	for name, c := range map[string]struct {
		answer outcome // of the question that gives it its place
		within time.Duration
	}{
		"it knows its place":             {works, 100 * time.Millisecond},
		"the answer is still on its way": {repliesLate, request().Policy.Renewal.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.store.slow = 100 * time.Millisecond
				second := b.other(t)
				defer closeAll(t, second)
				first := b.acquire(request())
				b.store.fate = func(verb, _ string, n int) outcome {
					if verb == "acquire" && n == 1 {
						return c.answer
					}
					return works
				}
				l := &contenders{b: b}
				go l.contend(second, "second", 0)
				synctest.Wait()
				first.Drop(t.Context())
				b.pass(c.within)
				if l.served() != 1 {
					t.Error("the lock is free and offered, and who waits for it listens and does not come")
				}
			})
		})
	}
}

// mutation: hear that does not end the linger makes this fail.
func TestLingerEndsWhenSomebodyWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second := b.other(t)
		defer closeAll(t, second)
		r := request()
		r.Policy.Linger = time.Hour
		b.acquire(r).Release(t.Context())
		l := &contenders{b: b}
		go l.contend(second, "second", 0)
		synctest.Wait()
		if l.served() != 1 {
			t.Error("a lock that nobody uses was kept from one who waits")
		}
	})
}

// mutation: acquire.lua that tells the owner of tickets only makes this fail, in its counterpart
// in the model.
func TestLingerEndsWhenSomebodyPolls(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second := b.other(t)
		defer closeAll(t, second)
		r := request()
		r.Policy.Linger, r.Policy.Wait.Poll = time.Hour, true
		b.acquire(r).Release(t.Context())
		var busy *BusyError
		if _, err := second.Acquire(t.Context(), r); !errors.As(err, &busy) {
			t.Fatalf("acquire: %v; want busy", err)
		}
		synctest.Wait()
		l, err := second.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		l.Drop(t.Context())
	})
}

// mutation: endLinger that does not look for the next waiter makes this fail.
func TestAnOfferThatIsNotTakenGoesToTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		first := b.acquire(request())
		r := request()
		r.Waiter, r.Wake = "never comes", func() {}
		if _, err := b.m.Acquire(t.Context(), r); err == nil {
			t.Fatal("two leases")
		}
		l := &contenders{b: b}
		go l.contend(b.m, "next", 0)
		synctest.Wait()
		first.Release(t.Context())
		b.pass(offerTime - time.Nanosecond)
		if l.served() != 0 {
			t.Error("the offer did not stand for its time")
		}
		b.pass(time.Nanosecond)
		if l.served() != 1 {
			t.Error("the next had to wait longer than the offer stood")
		}
		if takes := b.store.count("acquire", testRun); takes != 1 {
			t.Errorf("Redis was asked %d times; want 1", takes)
		}
		if got := testutil.ToFloat64(b.m.opts.Metrics.handoffs.WithLabelValues("unused")); got != 1 {
			t.Errorf("%v offers were counted as unused; want 1", got)
		}
	})
}

// A process is gone with its place at the head of the queue, or with the lock offered to it.
func TestAProcessThatIsGoneDoesNotStallTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second := b.other(t)
		defer closeAll(t, second)
		first := b.acquire(request())
		for i := range 5 {
			c := claim{runUID: testRun, token: "gone.x", ttl: time.Second, process: "gone" + strconv.Itoa(i)}
			if got, err := b.store.Acquire(t.Context(), c); !got.queued || err != nil {
				t.Fatalf("%+v, %v; want a place in line", got, err)
			}
		}
		l := &contenders{b: b}
		go l.contend(second, "second", 0)
		synctest.Wait()
		first.Drop(t.Context())
		b.pass(ticketTime + askTime)
		if l.served() != 1 {
			t.Error("five that are gone stall the line")
		}
	})
}

func TestAPlaceIsKeptForTheBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second := b.other(t)
		defer closeAll(t, second)
		first := b.acquire(request())
		r := request()
		r.Wake = func() { t.Error("woken after it gave up") }
		if _, err := second.Acquire(t.Context(), r); err == nil {
			t.Fatal("two leases")
		}
		b.pass(r.Policy.Wait.Budget + time.Second)
		asked := b.store.count("acquire", testRun)
		b.pass(time.Minute)
		if again := b.store.count("acquire", testRun); again != asked {
			t.Errorf("Redis was asked %d more times for one who gave up", again-asked)
		}
		if len(second.runs) != 0 {
			t.Errorf("%d runs are remembered", len(second.runs))
		}
		first.Drop(t.Context())
	})
}

// mutation: settle without dissolve makes this fail: the waiter would never hear that
// Redis is down.
func TestWhoWaitsLearnsThatRedisIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		defer b.acquire(request()).Drop(t.Context())
		second := b.other(t)
		defer closeAll(t, second)
		var woken atomic.Bool
		r := request()
		r.Wake = func() { woken.Store(true) }
		if _, err := second.Acquire(t.Context(), r); err == nil {
			t.Fatal("two leases")
		}
		b.store.script(func(string, string, int) outcome { return refused })
		b.pass(time.Second)
		var down *UnavailableError
		if _, err := second.Acquire(t.Context(), r); !woken.Load() || !errors.As(err, &down) {
			t.Errorf("woken %v, acquire: %v; want unavailable", woken.Load(), err)
		}
	})
}

func TestWhoPollsGetsNoPlaceButRespectsTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second, third := b.other(t), b.other(t)
		defer closeAll(t, second, third)
		first := b.acquire(request())
		poll := request()
		poll.Policy.Wait.Poll, poll.Wake = true, func() { t.Error("who polls is not woken") }
		var busy *BusyError
		if _, err := second.Acquire(t.Context(), poll); !errors.As(err, &busy) || busy.Queued {
			t.Fatalf("acquire: %v; want busy, without a place in line", err)
		}
		waits := request()
		waits.Wake = func() {}
		if _, err := third.Acquire(t.Context(), waits); !errors.As(err, &busy) || !busy.Queued {
			t.Fatalf("acquire: %v; want a place in line", err)
		}
		first.Drop(t.Context())
		synctest.Wait()
		if _, err := second.Acquire(t.Context(), poll); !errors.As(err, &busy) {
			t.Errorf("acquire: %v; want busy, the lock is offered to another", err)
		}
		lease, err := third.Acquire(t.Context(), waits)
		if err != nil {
			t.Fatal(err)
		}
		lease.Drop(t.Context())
		b.pass(time.Second)
	})
}

func TestHandoffsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		reg := prometheus.NewRegistry()
		second := b.newManager(reg)
		defer closeAll(t, second)
		l := &contenders{b: b}
		first := b.acquire(request())
		for i := range 3 {
			go l.contend(second, strconv.Itoa(i), time.Second)
			synctest.Wait()
		}
		first.Drop(t.Context())
		b.pass(5 * time.Second)
		handoffs := second.opts.Metrics.handoffs
		if remote, local := testutil.ToFloat64(handoffs.WithLabelValues("remote")), testutil.ToFloat64(handoffs.WithLabelValues("local")); remote != 1 || local != 2 {
			t.Errorf("%v from another process, %v inside; want 1 and 2", remote, local)
		}
		if got := testutil.CollectAndCount(second.opts.Metrics.wait); got == 0 {
			t.Error("no wait was measured")
		}
	})
}

// mutation: finish that lingers whoever polled a moment ago makes this fail.
func TestAMomentAfterSomebodyPolledNothingLingers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second := b.other(t)
		defer closeAll(t, second)
		r := request()
		r.Policy.Wait.Poll = true
		first := b.acquire(r)
		if _, err := second.Acquire(t.Context(), r); err == nil {
			t.Fatal("two leases")
		}
		synctest.Wait()
		first.Release(t.Context())
		b.acquire(r).Release(t.Context()) // nobody asked for this one
		l, err := second.Acquire(t.Context(), r)
		if err != nil {
			t.Fatalf("it lingers: %v", err)
		}
		l.Drop(t.Context())
		b.pass(contendedTime)
		b.acquire(r).Release(t.Context())
		if b.store.ownerOf(testRun) == "" {
			t.Error("long after, a lock does not linger")
		}
		b.pass(time.Second)
		if len(b.m.runs) != 0 {
			t.Errorf("%d runs are remembered", len(b.m.runs))
		}
	})
}
