// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// cancels fails the test unless an answer says to wait, and to cancel these: "<lock>:<ticket>".
func (s *lockScene) cancels(a store.LocksAnswer, want ...string) {
	s.t.Helper()
	s.state(store.LocksWaiting, a)
	var got []string
	for _, c := range a.Cancel {
		if c.Run != "team/"+uid(c.Ticket) {
			s.t.Errorf("cancels %s of run %s", c.Ticket, c.Run)
		}
		got = append(got, c.Lock+":"+c.Ticket)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("cancels %v, want %v", got, want)
	}
}

// of is one permit of a lock of so many.
func of(lock string, limit int, kind store.OnBusy) store.Want {
	w := one(lock, limit)
	w.OnBusy = kind
	return w
}

// The limit of another of its locks was lowered: it can never begin, whoever ends for it.
//
// mutations: a take that has others superseded for it, or that cancels by a look at each lock
// alone.
func TestWhoCanNeverHaveItsLocksEndsNobodys(t *testing.T) {
	gpu := func(limit int) store.Want { return store.Want{Name: "gpu", Permits: 3, Limit: limit, Longest: 9} }
	for _, kind := range []store.OnBusy{store.CancelOldest, store.KeepLatest} {
		onBoth(t, func(s *lockScene) {
			deploy := of("deploy", 1, kind)
			s.take(ticket("h", 1, 0), one("gpu", 3))
			s.take(ticket("w", 2, 0), gpu(3), deploy)
			s.cancels(s.take(ticket("w", 2, 0), gpu(2), deploy))
			s.state(store.LocksHeld, s.take(ticket("c", 3, 0), deploy))
			s.cancels(s.take(ticket("w", 2, 0), gpu(2), deploy))
			other := of("deploy", 1, store.KeepLatest)
			s.state(store.LocksWaiting, s.take(ticket("v", 1, 0), other)) // it came before w
			s.wakes(s.take(ticket("w", 2, 0), gpu(2), deploy).Wake)
			s.state(store.LocksWaiting, s.take(ticket("v", 1, 0), other))
			s.drop(store.Dropping{Ticket: "v"})
			s.state(store.LocksWaiting, s.take(arrived(ticket("x", 9, 0), 2000), other)) // and x after it
			s.cancels(s.take(ticket("w", 2, 0), gpu(2), deploy))
		})
	}
}

// One that waits for another lock, too, could not begin if the holder ended: that goes on.
//
// mutations: cancels that looks at each lock alone; one without its look at what others before it
// are about to take, at rates, or at Ordered lines; one that gives what the ends free to the one
// that asks alone, or twice.
func TestNobodyIsCancelledForWhoCannotBeginThen(t *testing.T) {
	deploy := of("deploy", 1, store.CancelOldest)
	two := func(w store.Want) store.Want {
		w.Permits = 2
		return w
	}
	for name, c := range map[string]struct {
		other store.Want
		scene func(*lockScene) // c holds deploy in it
		ends  string           // whose end lets it begin by a cancel; "": nobody's
		too   []store.Want     // what c holds beside deploy
	}{
		"another holds its mutex": {one("train", 1), func(s *lockScene) { s.take(ticket("h", 1, 0), one("train", 1)) }, "h", nil},
		"another has all of what it would be the latest for": {
			of("train", 2, store.KeepLatest), func(s *lockScene) { s.take(ticket("h", 1, 0), two(one("train", 2))) }, "h", nil,
		},
		"one before it is about to take its mutex": {one("train", 1), func(s *lockScene) {
			s.take(ticket("g", 1, 0), one("train", 1))
			s.state(store.LocksWaiting, s.take(ticket("h", 1, 0), one("train", 1)))
			s.wakes(s.drop(store.Dropping{Ticket: "g"}), "h")
		}, "h", nil},
		"a run of its own tree has the other one": {of("train", 1, store.CancelOldest), func(s *lockScene) {
			k := ticket("h", 1, 0)
			k.Tree = "team/w"
			s.take(k, one("train", 1))
		}, "h", nil},
		"another lock is reserved": {of("train", 1, store.CancelOldest), func(s *lockScene) { s.reserves("h", "train", 1) }, "h", nil},
		"it is behind another in an Ordered line": {
			store.Want{Name: "train", Permits: 1, Limit: 3, Ordered: true, Longest: 9}, func(s *lockScene) {
				line := store.Want{Name: "train", Permits: 3, Limit: 3, Ordered: true, Longest: 9}
				s.take(ticket("g", 1, 0), one("train", 3))
				s.state(store.LocksWaiting, s.take(ticket("h", 1, 0), line))
			}, "h", nil,
		},
		"a rate lets it not": {
			store.Want{Name: "train", Permits: 1, Limit: 3, Longest: 9, Rate: atMost(1, time.Hour)}, func(s *lockScene) {
				s.take(ticket("h", 1, 0), store.Want{Name: "train", Permits: 1, Limit: 3, Longest: 9, Rate: atMost(1, time.Hour)})
			}, "", nil,
		},
		"one before it gets what the end frees": {one("train", 1), func(s *lockScene) {
			s.state(store.LocksHeld, s.take(ticket("c", 5, 0), one("train", 1), deploy))
			s.state(store.LocksWaiting, s.take(ticket("h", 1, 0), one("train", 1)))
		}, "h", []store.Want{one("train", 1)}},
		"one before it gets what the end frees, and another holds the rest": {one("train", 2), func(s *lockScene) {
			s.state(store.LocksHeld, s.take(ticket("g", 1, 0), one("train", 2)))
			s.state(store.LocksHeld, s.take(ticket("c", 5, 0), one("train", 2), deploy))
			s.state(store.LocksWaiting, s.take(ticket("h", 1, 0), one("train", 2)))
		}, "h", []store.Want{one("train", 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(s *lockScene) {
				c.scene(s)
				s.state(store.LocksHeld, s.take(ticket("c", 5, 0), append(c.too, deploy)...))
				s.cancels(s.take(ticket("w", 6, 0), c.other, deploy))
				s.cancels(s.take(ticket("w", 6, 0), c.other, deploy)) // as a resync has it ask
				if c.ends != "" {
					s.drop(store.Dropping{Ticket: c.ends})
					s.cancels(s.take(ticket("w", 6, 0), c.other, deploy), "deploy:c")
				}
			})
		})
	}
}

// mutations: cancels that names one twice, that names for each the lock that is waited for first,
// or that does not see what else the end of a run frees, whatever its onBusy and place in the list.
func TestWhoIsCancelledFreesAllThatItHolds(t *testing.T) {
	a, b := of("a", 1, store.CancelOldest), of("b", 1, store.CancelOldest)
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), a)
		s.take(ticket("i", 2, 0), b)
		s.cancels(s.take(ticket("w", 3, 0), a, b), "a:h", "b:i")
		s.drop(store.Dropping{Ticket: "h"})
		s.cancels(s.take(ticket("w", 3, 0), a, b), "b:i")               // until it ends
		s.state(store.LocksSuperseded, s.take(ticket("v", 2, 0), b, a)) // it came before w
		s.state(store.LocksHeld, s.take(ticket("n", 5, 0), one("a", 1)))
		s.cancels(s.take(ticket("w", 3, 0), a, b), "a:n", "b:i")
		s.cancels(s.take(ticket("w", 3, 0), one("a", 1), b)) // a is taken by now, and nobody is cancelled for it
	})
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), a, b, one("mutex:m", 1), one("0", 1))
		s.cancels(s.take(ticket("w", 3, 0), a, b, one("mutex:m", 1), one("0", 1)), "a:h")
	})
	onBoth(t, func(s *lockScene) { // the first of two that hold the second lock ends for the first lock already
		b := of("b", 2, store.CancelOldest)
		s.take(ticket("h", 1, 0), a, b)
		s.take(ticket("i", 2, 0), b)
		two := b
		two.Permits = 2
		s.cancels(s.take(ticket("w", 3, 0), a, two), "a:h", "b:i")
	})
	onBoth(t, func(s *lockScene) { // what is freed is enough for one before it, too
		pool := func(permits int) store.Want { return store.Want{Name: "pool", Permits: permits, Limit: 3, Longest: 9} }
		s.take(ticket("h", 9, 0), a, pool(3))
		s.state(store.LocksWaiting, s.take(ticket("v", 1, 0), pool(2)))
		s.cancels(s.take(ticket("w", 3, 0), a, pool(2)))
		s.cancels(s.take(ticket("w", 3, 0), a, pool(1)), "a:h")
	})
	onBoth(t, func(s *lockScene) { // two runs that hold what a step of the other one wants: each may end for the other
		s.take(ticket("p", 1, 0), a)
		s.take(ticket("q", 2, 0), b)
		s.cancels(s.take(ticket("p/s", 3, 0), b, one("c", 1)), "b:q")
		s.take(ticket("x", 4, 0), one("d", 1))
		s.cancels(s.take(ticket("q/s", 5, 0), a, one("d", 1)))
		s.drop(store.Dropping{Ticket: "x"})
		s.cancels(s.take(ticket("q/s", 5, 0), a, one("d", 1)), "a:p")
	})
}

// A run ends as a whole: what other parts of it hold is free then, and where they wait they do so
// no more. So does the tree of a run at the top, but not that of a run below it.
//
// mutations: cancels that counts what one ticket holds only, that takes who ends for one before
// it, also in an Ordered line, or that takes the whole tree for ended with a child run.
func TestWhoIsCancelledEndsWithAllItsParts(t *testing.T) {
	deploy := of("deploy", 1, store.CancelOldest)
	line := func(name string, permits, limit int) store.Want {
		return store.Want{Name: name, Permits: permits, Limit: limit, Ordered: true, Longest: 9}
	}
	for name, c := range map[string]struct {
		others []store.Want // of c/s1 beside deploy, and of those that ask for it
		waits  store.Want   // of c/s2
	}{
		"plain":                             {[]store.Want{one("cluster", 1)}, one("cluster", 1)},
		"Ordered":                           {[]store.Want{line("cluster", 1, 1)}, line("cluster", 1, 1)},
		"Ordered, and one that has no room": {[]store.Want{line("cluster", 1, 2)}, line("cluster", 2, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(s *lockScene) {
				all := append(slices.Clone(c.others), deploy)
				s.take(ticket("c/s1", 1, 0), all...)
				s.state(store.LocksWaiting, s.take(ticket("c/s2", 2, 0), c.waits))
				s.cancels(s.take(ticket("w", 3, 0), all...), "deploy:c/s1")
				s.cancels(s.take(ticket("w", 3, 0), all...), "deploy:c/s1") // as a resync has it ask
			})
		})
	}
	onBoth(t, func(s *lockScene) { // each part holds one of two locks
		s.take(ticket("c/s1", 1, 0), deploy)
		s.take(ticket("c/s2", 2, 0), one("cluster", 1))
		s.cancels(s.take(ticket("w", 3, 0), one("cluster", 1), deploy), "deploy:c/s1")
	})
	onBoth(t, func(s *lockScene) { // the other part, too, holds a lock that has its oldest holder end
		pool := of("pool", 2, store.CancelOldest)
		s.take(ticket("i", 1, 0), pool)
		s.take(ticket("c/s1", 2, 0), deploy)
		s.take(ticket("c/s2", 3, 0), pool)
		s.cancels(s.take(ticket("w", 4, 0), deploy, pool), "deploy:c/s1") // and i goes on
	})
	onBoth(t, func(s *lockScene) { // two parts hold the same lock, and what is between them goes on
		pool := of("pool", 3, store.CancelOldest)
		for i, id := range []string{"c/s1", "i", "c/s2"} {
			s.take(ticket(id, 1+i, 0), pool)
		}
		two := pool
		two.Permits = 2
		s.cancels(s.take(ticket("w", 4, 0), two), "pool:c/s1")
	})
	onBoth(t, func(s *lockScene) { // what another part frees lets one before it begin, which takes the second lock
		s.take(ticket("c/s1", 1, 0), deploy)
		s.take(ticket("c/s2", 2, 0), one("z", 1))
		s.take(ticket("h", 3, 0), one("cluster", 1))
		s.state(store.LocksWaiting, s.take(ticket("v", 4, 0), one("cluster", 1), one("z", 1)))
		s.drop(store.Dropping{Ticket: "h"})
		s.cancels(s.take(ticket("w", 5, 0), one("cluster", 1), deploy))
	})
	for _, too := range [][]store.Want{nil, {one("cluster", 1)}} { // so does its place in the line of a lock that only others ask for
		onBoth(t, func(s *lockScene) {
			s.take(ticket("c/s1", 1, 0), deploy, one("y", 1))
			s.take(ticket("h", 2, 0), one("cluster", 1))
			s.state(store.LocksWaiting, s.take(ticket("c/s2", 3, 0), append(too, line("z", 1, 1), one("y", 1))...))
			s.state(store.LocksWaiting, s.take(ticket("v", 4, 0), one("cluster", 1), line("z", 1, 1)))
			s.drop(store.Dropping{Ticket: "h"})
			s.cancels(s.take(ticket("w", 5, 0), one("cluster", 1), deploy))
		})
	}
	for _, ordered := range []bool{false, true} { // a child run d of c
		cluster := one("cluster", 1)
		cluster.Ordered = ordered
		child := ticket("d/s", 2, 0)
		child.Tree = "team/c"
		onBoth(t, func(s *lockScene) {
			s.take(ticket("c/s", 1, 0), deploy)
			s.take(child, cluster)
			s.cancels(s.take(ticket("w", 3, 0), cluster, deploy), "deploy:c/s")
		})
		onBoth(t, func(s *lockScene) {
			s.take(ticket("c/s", 1, 0), deploy, cluster)
			s.state(store.LocksWaiting, s.take(child, cluster))
			s.cancels(s.take(ticket("w", 3, 0), cluster, deploy), "deploy:c/s")
		})
		onBoth(t, func(s *lockScene) { // the child alone ends, and c goes on
			s.take(child, deploy)
			s.take(ticket("c/s", 1, 0), cluster)
			s.cancels(s.take(ticket("w", 3, 0), cluster, deploy))
		})
		onBoth(t, func(s *lockScene) {
			s.take(child, deploy, cluster)
			s.state(store.LocksWaiting, s.take(ticket("c/s", 1, 0), cluster))
			s.cancels(s.take(ticket("w", 3, 0), cluster, deploy))
		})
	}
}

// A question that has to wait looks at those before it only where somebody is to be cancelled. Of
// 300 before it each look reads a place, and Redis does nothing else meanwhile.
//
// mutations: cancels that looks at those before it first, or where another lock has no room.
func TestWhoWaitsDoesNotLookAtThoseBeforeIt(t *testing.T) {
	for name, c := range map[string]struct {
		locks, cancels int // how many locks, and how many of those end their oldest holders
		most           int // reads of a hash
	}{
		"one lock":                            {1, 0, 20},
		"eight locks":                         {8, 0, 60},
		"eight, of which one ends its holder": {8, 1, 80},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Start(t).Client()
			s := store.New(client, store.Options{})
			token, err := s.BeginLocks(t.Context())
			if err == nil {
				_, err = s.RestoreLocks(t.Context(), token, 0, nil)
			}
			take := func(k store.Ticket, wants ...store.Want) store.LocksAnswer {
				a, failed := s.TakeLocks(t.Context(), k, wants)
				err = errors.Join(err, failed)
				return a
			}
			var shared, all []store.Want
			for i := range c.locks {
				w := store.Want{Name: fmt.Sprint("lock", i), Permits: 1, Limit: 1, Longest: 1000}
				take(ticket(fmt.Sprint("h", i), 1, 0), w)
				if i < c.cancels {
					w.OnBusy = store.CancelOldest
				} else {
					shared = append(shared, w)
				}
				all = append(all, w)
			}
			for i := range 300 {
				take(ticket(fmt.Sprint("w", i), 2+i, 0), shared...)
			}
			before := commands(t, client, "hget")
			a := take(ticket("last", 1000, 0), all...)
			if n := commands(t, client, "hget") - before; n > c.most || a.State != store.LocksWaiting || len(a.Cancel) > 0 || err != nil {
				t.Errorf("%d reads of a hash, want at most %d; %s, cancels %v, %v", n, c.most, a.State, a.Cancel, err)
			}
		})
	}
}

// commands is how often a command was done.
func commands(t *testing.T, client *redis.Client, name string) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_"+name+":calls=")
	text, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("how often %s was done: %v", name, err)
	}
	return n
}
