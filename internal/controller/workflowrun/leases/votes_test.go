// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// mutation: a pass that something else woke counted as a try of the policy's makes this fail.
func TestOnlyTriesOfThePolicyCount(t *testing.T) {
	var v Votes
	began := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	const wait = 500 * time.Millisecond
	for i, step := range []struct{ at, want int }{{0, 1}, {100, 1}, {499, 1}, {500, 2}, {600, 2}, {1000, 3}} {
		v.busy(at(step.at), wait)
		if v.tries != step.want {
			t.Errorf("look %d, after %d ms: %d tries, want %d", i, step.at, v.tries, step.want)
		}
	}
	v.had(at(0), at(1200))
	if v.BusyTries != 3 || v.Wait != 1200*time.Millisecond {
		t.Errorf("%+v", v)
	}
	v.tries = 1
	if v.had(time.Time{}, at(2000)); v.BusyTries != 3 || v.Wait != 1200*time.Millisecond {
		t.Errorf("a shorter wait made %+v", v)
	}
}

// A run may end without a lock that is busy: its vote has the wait up to then, and the last try. A
// Redis that is away is no busy lock. What is decided may come to nothing, so the wait goes on.
//
// mutation: VotesUnder that looks at no state, that leaves the last try out, or that writes to the
// State makes this fail.
func TestAnEndWithoutTheLockVotesWithTheWait(t *testing.T) {
	began := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	const wait = 500 * time.Millisecond
	for name, c := range map[string]struct {
		state lifecycle.LockState
		after time.Duration // since the lock was found busy for the last time
		want  Votes
	}{
		"busy, at the time of a try":    {lifecycle.LockBusy, wait, Votes{BusyTries: 3, Wait: 2 * wait}},
		"busy, before that":             {lifecycle.LockBusy, wait / 2, Votes{BusyTries: 2, Wait: wait + wait/2}},
		"Redis is away":                 {lifecycle.LockUnavailable, wait, Votes{BusyTries: 1, Wait: time.Millisecond}},
		"the lock is held, and counted": {lifecycle.LockHeld, wait, Votes{BusyTries: 1, Wait: time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			st := &State{busy: busyWait{since: began}, Votes: Votes{BusyTries: 1, Wait: time.Millisecond}}
			st.Votes.busy(began, wait)
			st.Votes.busy(began.Add(wait), wait)
			before := st.Votes
			got := st.VotesUnder(lifecycle.Lock{State: c.state}, began.Add(wait+c.after))
			if got.BusyTries != c.want.BusyTries || got.Wait != c.want.Wait {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if st.Votes != before {
				t.Errorf("the state has %+v now", st.Votes)
			}
		})
	}
}
