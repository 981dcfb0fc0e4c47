// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// ledger is what outlives all Redis, and a Redis that a process begins to use. It may fail.
type ledger struct {
	mu    sync.Mutex
	name  string
	since int64
	asked int
	fails error
}

func (l *ledger) Since(_ context.Context, name string, now int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.fails != nil {
		return 0, l.fails
	}
	if name != l.name {
		l.name, l.since = name, now
	}
	return l.since, nil
}

// set has the ledger fail, or not, and returns how often it was asked.
func (l *ledger) set(fails error) (asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = fails
	return l.asked
}

// replica is a process that uses a Redis, which is called as that is named.
func (l *ledger) replica(client *redis.Client, name string) (*Store, *naming) {
	n := &naming{gives: name, uses: name, use: 1}
	s := &shared{scene: &scene{client: client}}
	return s.of("a", withNaming(n), func(o *Options) { o.Since, o.Clock = l.Since, nil }), n
}

// queued asks for a mutex, and may wait for it.
var queued = []Want{{Name: "mutex", Permits: 1, Limit: 1, Longest: 9}}

// holds counts the locks of a Redis from runs, of which this one has the mutex; empty: none has.
func holds(t *testing.T, g *Store, run string) {
	t.Helper()
	token, err := g.BeginLocks(t.Context())
	must(t, err, "begin locks")
	var all []Holding
	if run != "" {
		all = []Holding{{Ticket: Ticket{ID: run, Run: "team/" + run, Tree: "team/" + run, Version: "1"}, Fence: 1, Locks: []Hold{{Name: queued[0].Name, Permits: 1}}}}
	}
	_, err = g.RestoreLocks(t.Context(), token, 0, all)
	must(t, err, "open locks")
}

func takes(t *testing.T, g *Store, run string) (state string, err error) {
	t.Helper()
	got, err := g.TakeLocks(t.Context(), Ticket{ID: run, Run: "team/" + run, Tree: "team/" + run, Version: "1"}, queued)
	return got.State, err
}

// Two Redis: the first is used, then the second, then the first again. A lock that was given in the
// second is not given in the first, neither by a process that used it before nor by one that
// begins. The data of the first says that it is whole: it is the same process, with the term
// that both know.
//
// mutations: floor without since, used that asks once for each process, and a since of 0, make this
// fail: r3 has the lock, too.
func TestAMoveBackGivesNoLockTwice(t *testing.T) {
	first, second := testClient(t, redistest.Start(t).Addr()), testClient(t, redistest.Start(t).Addr())
	for name, begins := range map[string]bool{"by who was there before": false, "by one that begins": true} {
		t.Run(name, func(t *testing.T) {
			must(t, errors.Join(first.FlushAll(t.Context()).Err(), second.FlushAll(t.Context()).Err()), "empty both")
			l := &ledger{}
			a, usesA := l.replica(first, "A")
			holds(t, a, "")
			if state, err := takes(t, a, "r1"); state != LocksHeld || err != nil {
				t.Fatalf("r1 is %q, %v", state, err)
			}
			_, err := a.DropLocks(t.Context(), Dropping{Ticket: "r1"})
			must(t, err, "r1 ends")
			c, _ := l.replica(second, "B")
			holds(t, c, "")
			if state, err := takes(t, c, "r2"); state != LocksHeld || err != nil {
				t.Fatalf("r2 is %q, %v", state, err)
			}
			back := a
			if usesA.use++; begins {
				back, _ = l.replica(first, "A")
			}
			state, err := takes(t, back, "r3")
			if r, ok := errors.AsType[*RebuildingError](err); !ok || r.Why != RebuildOlder {
				t.Fatalf("r3 is %q, %v, while r2 has the lock", state, err)
			}
			holds(t, back, "r2")
			if state, err := takes(t, back, "r3"); state != LocksWaiting || err != nil {
				t.Errorf("r3 is %q, %v, while r2 has the lock", state, err)
			}
			again, _ := l.replica(first, "A")
			if state, err := takes(t, again, "r3"); state != LocksWaiting || err != nil {
				t.Errorf("after a restart r3 is %q, %v: that costs no rebuild", state, err)
			}
		})
	}
}

// A clock that was set back behind what is noted: the data is counted once, and then is good.
// mutation: reopen whose term is the time, whatever the floor is, makes this fail.
func TestAClockBehindWhatIsNotedCostsOneRebuild(t *testing.T) {
	client := testClient(t, redistest.Start(t).Addr())
	must(t, client.FlushAll(t.Context()).Err(), "empty it")
	l := &ledger{name: "A", since: time.Now().Add(time.Hour).UnixMilli()}
	for range 2 { // two replicas
		g, _ := l.replica(client, "A")
		if _, err := takes(t, g, "r"); is[*RebuildingError](err) {
			holds(t, g, "")
		}
		for range 3 {
			if state, err := takes(t, g, "r"); state != LocksHeld || err != nil {
				t.Fatalf("r is %q, %v", state, err)
			}
		}
	}
}

// mutations: used that goes on without an answer, that asks at each call, or that asks again at
// once for each caller where nobody answers, and one that ends with its caller, make this fail.
func TestNothingIsUsedBeforeItIsNoted(t *testing.T) {
	client := testClient(t, redistest.Start(t).Addr())
	s, l := newShared(t, client), &ledger{}
	g := s.of("a", withNaming(&naming{gives: "A", uses: "A", use: 1}), func(o *Options) { o.Since = l.Since })
	away := errors.New("the API server does not answer")
	l.set(away)
	for call, err := range calls(t.Context(), g) {
		if !errors.Is(err, away) || !is[*UnavailableError](err) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if asked := l.set(nil); asked != 1 {
		t.Errorf("it asked %d times within a moment", asked)
	}
	if err := Own(t.Context(), g); !errors.Is(err, away) {
		t.Errorf("in the same moment: %v", err)
	}
	s.clock.Step(lookEvery)
	gone, leave := context.WithCancel(t.Context())
	leaves := func(o *Options) {
		o.Since = func(ctx context.Context, name string, now int64) (int64, error) {
			leave()
			return now, ctx.Err()
		}
	}
	impatient := s.of("a", withNaming(&naming{gives: "A", uses: "A", use: 1}), leaves)
	must(t, Own(gone, impatient), "a caller that gives up meanwhile")
	must(t, Own(t.Context(), impatient), "the one after it")
	var all sync.WaitGroup
	var failed atomic.Int64
	for range 20 {
		all.Go(func() {
			if Own(t.Context(), g) != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	must(t, Own(t.Context(), g), "once it answers")
	if asked := l.set(nil); asked != 2 || failed.Load() != 0 {
		t.Errorf("it asked %d times, and %d calls failed", asked, failed.Load())
	}
	if _, err := Revision(t.Context(), g); err != nil {
		t.Errorf("how far history went: %v", err)
	}
}

// One that does not lead yet, or an operator of tests, notes nothing.
// mutation: named that asks whatever the number is makes this fail.
func TestWhoUsesNothingNotesNothing(t *testing.T) {
	s, l := newShared(t, testClient(t, redistest.Start(t).Addr())), &ledger{}
	n := &naming{gives: "A", uses: "A"}
	g := s.of("a", withNaming(n), func(o *Options) { o.Since = l.Since })
	must(t, Own(t.Context(), g), "before it leads")
	if asked := l.set(nil); asked != 0 {
		t.Errorf("it asked %d times", asked)
	}
	n.use = 1
	must(t, Own(t.Context(), g), "the leader")
	if asked := l.set(nil); asked != 1 || l.name != "A" || l.since < 1e12 {
		t.Errorf("it asked %d times, and noted %q since %s", asked, l.name, fmt.Sprint(l.since))
	}
}
