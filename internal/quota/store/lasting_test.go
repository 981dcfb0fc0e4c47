// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// mutations: a part that has what was dropped or taken anew, or who has left, came, moved, wants
// other locks or was refused, makes this fail.
func TestWhatLastsBetweenTwoSnapshots(t *testing.T) {
	hold := func(id string, fence int64) Holding {
		return Holding{Ticket: Ticket{ID: id}, Fence: fence, Locks: []Hold{{Name: "x", Permits: 1}}}
	}
	wait := func(order, refused string, permits int) Waiter {
		return Waiter{Ticket: Ticket{ID: "w"}, order: order, Refused: refused, Wants: []Want{{Name: "x", Permits: permits, Limit: 1}}}
	}
	holds := func(all ...Holding) LocksSnapshot { return LocksSnapshot{Holds: all} }
	waits := func(all ...Waiter) LocksSnapshot { return LocksSnapshot{Waiters: all} }
	for name, c := range map[string]struct{ first, later, want LocksSnapshot }{
		"nothing":              {},
		"a hold":               {holds(hold("a", 1)), holds(hold("a", 1)), holds(hold("a", 1))},
		"a hold beside others": {holds(hold("a", 1), hold("b", 2)), holds(hold("b", 2), hold("c", 3)), holds(hold("b", 2))},
		"a hold that is over":  {first: holds(hold("a", 1))},
		"a hold that is new":   {later: holds(hold("a", 1))},
		"a hold taken anew":    {first: holds(hold("a", 1)), later: holds(hold("a", 2))},
		"a wait":               {waits(wait("1", "", 1)), waits(wait("1", "", 1)), waits(wait("1", "", 1))},
		"a wait that is over":  {first: waits(wait("1", "", 1)), later: holds(hold("w", 3))},
		"a wait that is new":   {first: holds(hold("w", 1)), later: waits(wait("1", "", 1))},
		"a wait that moved":    {first: waits(wait("2", "", 1)), later: waits(wait("1", "", 1))},
		"a wait for more":      {first: waits(wait("1", "", 1)), later: waits(wait("1", "", 2))},
		"refused since":        {first: waits(wait("1", "", 1)), later: waits(wait("1", LocksDeadlock, 1))},
		"refused before":       {first: waits(wait("1", LocksDeadlock, 1)), later: waits(wait("1", "", 1))},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.first.Lasting(c.later), cmp.AllowUnexported(Waiter{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}

// mutation: one that looks for one kind of error only makes this fail.
func TestWhereRedisCannotBeUsed(t *testing.T) {
	unavailable, closed := error(&UnavailableError{cause: errLost}), error(&RebuildingError{})
	for want, all := range map[bool][]error{
		true:  {unavailable, fmt.Errorf("resync: %w", unavailable), errors.Join(errLost, unavailable)},
		false: {nil, errLost, closed, errors.Join(unavailable, closed)},
	} {
		for _, err := range all {
			if Unusable(err) != want {
				t.Errorf("%v: %t", err, !want)
			}
		}
	}
}
