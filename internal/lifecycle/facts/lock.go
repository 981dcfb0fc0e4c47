// SPDX-License-Identifier: Apache-2.0

package facts

import "time"

// LockState says whether this process may write the run.
type LockState int

// States of the run lock.
const (
	LockHeld        LockState = iota // this process holds a valid lease
	LockBusy                         // another lease holds the lock
	LockUnavailable                  // Redis cannot be used
)

// Lock describes the run lock as the writer sees it.
//
// Held: LeaseID and Fence are those of the lease. Busy and Unavailable: LeaseID is a fresh random
// id for a forced end, and Fence is ignored (a forced end writes status.fence + 1).
type Lock struct {
	State           LockState
	LeaseID         string
	Holder          string
	Fence           int64
	AcquiredAt      time.Time
	ForRun          bool      // the lease is kept from admission to the end of the run (scope Run)
	Renewed         bool      // renewed at least once
	RenewalFailures int32     // consecutive
	RenewalCause    string    // why the last renewal failed; "" if it did not
	UnlockedSince   time.Time // the validity ended then and the work goes on without the lock; zero: it did not
	Lost            string    // condition reason why this process lost its previous lease of this run; "" if it did not
	Message         string    // Unavailable: the cause. Busy: who holds it
	Overdue         bool      // Busy: it was waited for longer than may go unsaid
}
