// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// The limit was lowered below what the first in an Ordered line waits for. It is in nobody's way
// until the limit fits again: then it is at its old place.
//
// mutations: a take that leaves it in the line, that wakes nobody as it leaves, or that does not
// put it back, makes this fail.
func TestWhoCanNeverHaveItsLocksIsInNobodysWay(t *testing.T) {
	want := func(permits, limit int) store.Want {
		return store.Want{Name: "x", Permits: permits, Limit: limit, Ordered: true, Longest: 9}
	}
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), want(1, 3))
		s.state(store.LocksWaiting, s.take(ticket("a", 2, 0), want(3, 3)))
		s.state(store.LocksWaiting, s.take(ticket("b", 3, 0), want(1, 3)))
		s.wakes(s.take(ticket("a", 2, 0), want(3, 2)).Wake, "b") // one permit is free
		s.wakes(s.drop(store.Dropping{Ticket: "h"}), "b")
		s.state(store.LocksHeld, s.take(ticket("b", 3, 0), want(1, 2)))
		s.state(store.LocksHeld, s.take(ticket("c", 4, 0), want(1, 2)))
		s.state(store.LocksWaiting, s.take(ticket("d", 5, 0), want(1, 2)))
		if a := s.take(ticket("a", 2, 0), want(3, 3)); a.State != store.LocksWaiting || a.Position != 1 || a.Waiting != 2 {
			t.Errorf("the limit fits again: %+v, want it to wait as the first of 2", a)
		}
		s.wakes(s.drop(store.Dropping{Ticket: "b"}))
		s.wakes(s.drop(store.Dropping{Ticket: "c"}), "a")
	})
	onBoth(t, func(s *lockScene) { // one of its locks is enough
		y := store.Want{Name: "y", Permits: 1, Limit: 1, Ordered: true, Longest: 9}
		s.take(ticket("h", 1, 0), want(1, 3))
		s.take(ticket("i", 1, 0), y)
		s.state(store.LocksWaiting, s.take(ticket("a", 2, 0), want(3, 3), y))
		s.state(store.LocksWaiting, s.take(ticket("a", 2, 0), want(3, 2), y))
		s.state(store.LocksWaiting, s.take(ticket("b", 3, 0), y))
		s.wakes(s.drop(store.Dropping{Ticket: "i"}), "b")
		s.drop(store.Dropping{Ticket: "a"})
	})
}

// mutations: a script that lets one that can never have its locks cancel others, or a run itself,
// or another of its tree, makes this fail.
func TestWhoCancelsNobody(t *testing.T) {
	want := func(permits, limit int) store.Want {
		return store.Want{Name: "x", Permits: permits, Limit: limit, OnBusy: store.CancelOldest, Longest: 9}
	}
	onBoth(t, func(s *lockScene) { // the limit is lowered while it waits
		s.take(ticket("h", 1, 0), want(1, 3))
		s.take(ticket("a", 2, 0), want(3, 3))
		if a := s.take(ticket("a", 2, 0), want(3, 2)); a.State != store.LocksWaiting || len(a.Cancel) > 0 {
			t.Errorf("one that wants more than there is: %s, cancels %v", a.State, a.Cancel)
		}
	})
	onBoth(t, func(s *lockScene) {
		s.take(ticket("u/x", 1, 0), want(1, 1))
		if a := s.take(ticket("u/y", 1, 0), want(1, 1)); a.State != store.LocksWaiting || len(a.Cancel) > 0 {
			t.Errorf("a step beside another of its run: %s, cancels %v", a.State, a.Cancel)
		}
	})
	onBoth(t, func(s *lockScene) { // it cancels as many of others as it needs, and not its own
		s.take(ticket("u/x", 1, 0), want(1, 2))
		s.take(ticket("h", 1, 0), want(1, 2))
		s.cancels(s.take(ticket("u/y", 1, 0), want(1, 2)), "x:h")
	})
	onBoth(t, func(s *lockScene) { // a run below would end with the one that it has cancelled
		step := ticket("c/s", 2, 0)
		step.Run, step.Tree = "team/c", "team/p"
		s.take(ticket("p", 1, 0), want(1, 1))
		if a := s.take(step, want(1, 1)); a.State != store.LocksWaiting || len(a.Cancel) > 0 {
			t.Errorf("a step of a child run: %s, cancels %v", a.State, a.Cancel)
		}
	})
}
