// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// arrived is a ticket that came at a second. All of them were created at 1000.
func arrived(k store.Ticket, second int) store.Ticket {
	k.Came = time.Unix(int64(second), 0)
	return k
}

// keepsLatest is a wish for a lock of which the latest waits.
var keepsLatest = store.Want{Name: "x", Permits: 1, Limit: 1, Longest: 9, OnBusy: store.KeepLatest}

// A child run has the age of the run at the top, but it is the latest where it came last.
//
// mutations: arrival of locks.lua that goes by when a ticket was created, or by the version alone;
// order without when it came.
func TestTheLatestIsWhoCameLast(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), keepsLatest)
		younger := ticket("run", 2, 0)
		younger.Created = time.Unix(8000, 0)
		s.state(store.LocksWaiting, s.take(younger, keepsLatest))
		child := s.take(arrived(ticket("child", 3, 0), 9000), keepsLatest)
		s.state(store.LocksWaiting, child)
		s.wakes(child.Wake, "run")
		s.state(store.LocksSuperseded, s.take(arrived(ticket("back", 9, 0), 8999), keepsLatest)) // it asks late
	})
}

// Its place in line is by the age of the run at the top nevertheless.
//
// mutation: order that has when a ticket came for its age.
func TestWhoCameLastHasItsPlaceByItsAge(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), one("x", 1))
		younger := ticket("run", 2, 0)
		younger.Created = time.Unix(8000, 0)
		s.take(younger, one("x", 1))
		if a := s.take(arrived(ticket("child", 3, 0), 9000), one("x", 1)); a.Position != 1 {
			t.Errorf("%+v", a)
		}
	})
}

// An operator of before says nothing of when a ticket came. It leaves what a place says, and what
// it places itself came when it was created.
//
// mutations: locks_take.lua that takes more of the order of a new question than the priority;
// arrival of locks.lua that takes a place without the time for the latest.
func TestAnOlderOperatorLeavesWhenATicketCame(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), keepsLatest)
		s.take(ticket("old", 2, 0), keepsLatest)
		s.state(store.LocksWaiting, s.take(arrived(ticket("child", 3, 0), 9000), keepsLatest))
		s.state(store.LocksSuperseded, s.take(ticket("old", 4, 0), keepsLatest))
		s.state(store.LocksWaiting, s.take(ticket("child", 5, 7), keepsLatest))
		s.state(store.LocksSuperseded, s.take(arrived(ticket("other", 6, 0), 8000), keepsLatest))
	})
}
