// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// Votes are what the waits for its lock say of a run's policy, as far as this process has seen.
type Votes struct {
	// BusyTries is how often in a row, at the most, the lock was busy when its turn to be
	// tried had come.
	BusyTries int
	// Wait is the longest wait for it.
	Wait time.Duration

	tries int       // as BusyTries, of the wait that is under way
	due   time.Time // when the lock is to be tried again, as the policy says
}

// busy notes that the lock is busy, and when it is tried again. A pass that something else woke
// before is no try of the policy's.
func (v *Votes) busy(now time.Time, wait time.Duration) {
	if v.tries == 0 || !now.Before(v.due) {
		v.tries, v.due = v.tries+1, now.Add(wait)
	}
}

// had notes that the wait for the lock is over, which was first found busy at since; zero:
// it was not.
func (v *Votes) had(since, now time.Time) {
	v.BusyTries = max(v.BusyTries, v.tries)
	if !since.IsZero() {
		v.Wait = max(v.Wait, now.Sub(since))
	}
}

// VotesUnder are the votes of a decision under a lock. Without it, since it is busy, they have the
// wait for it, too, up to now: the run may end so, and a wait that nothing came of is no better
// than a long one.
func (st *State) VotesUnder(lock lifecycle.Lock, now time.Time) Votes {
	v := st.Votes
	if lock.State == lifecycle.LockBusy {
		v.busy(now, 0)
		v.had(st.busy.since, now)
	}
	return v
}
