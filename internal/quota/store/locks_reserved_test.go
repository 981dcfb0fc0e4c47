// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// reserves enters a hold that is reserved, on both.
func (s *lockScene) reserves(id, lock string, permits int) {
	s.t.Helper()
	s.last += 1_000_000
	h := store.Holding{Ticket: ticket(id, 5, 0), Fence: s.last, Locks: store.Reserved([]store.Hold{{Name: lock, Permits: permits}})}
	s.table.Restore("", s.last, h)
	if _, err := s.store.RestoreLocks(s.t.Context(), "", s.last, []store.Holding{h}); err != nil {
		s.t.Fatal(err)
	}
	s.same()
}

func by(kind store.OnBusy, limit int) store.Want {
	w := one("a", limit)
	w.OnBusy = kind
	return w
}

// Who finds a lock busy by DropNewest ends for good. A hold that is reserved may be nobody's.
//
// mutations: a full that counts what is reserved, one that takes off more than is reserved, and one
// that has whoever asks wait behind others, make this fail.
func TestNobodyIsRefusedForAHoldThatIsReserved(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		drops, two := by(store.DropNewest, 2), by(store.DropNewest, 2)
		two.Permits = 2
		s.reserves("frozen", "a", 1)
		s.state(store.LocksHeld, s.take(ticket("y", 10, 0), drops))
		s.state(store.LocksWaiting, s.take(ticket("x", 11, 0), drops))
		s.state(store.LocksBusy, s.take(ticket("w", 12, 0), two))
		s.drop(store.Dropping{Ticket: "y"})
		s.state(store.LocksHeld, s.take(ticket("x", 13, 0), drops))
		s.state(store.LocksWaiting, s.take(ticket("z", 14, 0), drops))
		s.drop(store.Dropping{Ticket: "frozen"})
		s.state(store.LocksHeld, s.take(ticket("z", 15, 0), drops))
		s.state(store.LocksBusy, s.take(ticket("v", 16, 0), drops))
	})
}

// A run would be cancelled for a lock that it may never have held. Where what is reserved leaves no
// room the end of others is of no use.
//
// mutations: a take that names whom it is reserved for, that names nobody beside it, or that names
// others where they are not enough, make this fail.
func TestNobodyIsCancelledForAHoldThatIsReserved(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.reserves("frozen", "a", 1)
		s.cancels(s.take(ticket("x", 10, 0), by(store.CancelOldest, 1)))
		s.drop(store.Dropping{Ticket: "x"})
		s.state(store.LocksHeld, s.take(ticket("y", 11, 0), by(store.CancelOldest, 2)))
		s.cancels(s.take(ticket("z", 12, 0), by(store.CancelOldest, 2)), "a:y")
		s.cancels(s.take(ticket("z", 12, 0), by(store.CancelOldest, 1)))
	})
}

// How long a lock is held says nothing where nobody may have held it.
//
// mutation: a drop that tells of all holds.
func TestAHoldThatIsReservedIsNoneThatEnded(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.reserves("frozen", "a", 1)
		d, err := s.store.DropLocks(t.Context(), store.Dropping{Ticket: "frozen"})
		if err != nil || d.Holds != 1 || len(d.Ended) > 0 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
