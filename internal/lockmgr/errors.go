// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinels.
var (
	// ErrLeaseLost is wrapped by every *LostError. Never to be retried under the same lease.
	ErrLeaseLost = errors.New("run lock lost")
	// ErrReleased is the cause of a lease's context, and its Err, once the lease was released
	// in good order.
	ErrReleased = errors.New("run lock released")
	// ErrClosed is returned by Acquire after Close, and is the cause of the contexts of leases
	// still in use at Close. Retry in another process.
	ErrClosed = errors.New("lock manager closed")
	// ErrInvalidRequest is returned by Acquire for a request that can never be granted: no run UID,
	// or a policy whose margin leaves no validity. Not worth a retry.
	ErrInvalidRequest = errors.New("invalid run lock request")
)

// Reason says why a lease was lost. The values are the reasons of the condition RunLockAbandoned.
type Reason string

// The reasons.
const (
	// LeaseDeadlineReached: no renewal succeeded before the validity ended.
	LeaseDeadlineReached Reason = "LeaseDeadlineReached"
	// OwnershipLost: Redis said that the lock is gone or another's.
	OwnershipLost Reason = "OwnershipLost"
	// RenewalFailuresExceeded: maxConsecutiveFailures renewals failed in a row.
	RenewalFailuresExceeded Reason = "RenewalFailuresExceeded"
)

// LostError is the cause of a lost lease's context, and its Err. It wraps ErrLeaseLost.
type LostError struct {
	// Reason says why.
	Reason Reason
	// RunUID is the run whose lock it was.
	RunUID string
	// Fence is the fence of the lost lease.
	Fence int64
}

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("%v: %s (run %s, fence %d)", ErrLeaseLost, e.Reason, e.RunUID, e.Fence)
}

// Unwrap returns ErrLeaseLost.
func (e *LostError) Unwrap() error { return ErrLeaseLost }

// BusyError is returned by Acquire when somebody else has the lock. Retry after RetryDelay.
type BusyError struct {
	// RunUID is the run whose lock is busy.
	RunUID string
	// Local says that the lock is in use in this process, so Redis was not asked.
	Local bool
	// Asked says that this is the answer of Redis, and not what this process knows by itself.
	Asked bool
	// Queued says that the caller has a place in the queue: its Request.Wake is called when the
	// lock is there for it.
	Queued bool
	// Owner is who has the lock, as Redis said when it was last asked.
	Owner Owner

	delay time.Duration
}

// Owner is who has a lock. The zero value: that is not known.
type Owner struct {
	// Token is that of the holder's lease; the part before the point is that of its process.
	Token string
	// Ends is when the lock ends if its holder does not renew it; zero: it does not end by itself.
	Ends time.Time
}

// SameProcess says whether two tokens are of one process.
func SameProcess(a, b string) bool {
	p, _, ok := strings.Cut(a, ".")
	q, _, too := strings.Cut(b, ".")
	return ok && too && p == q
}

// Error implements error.
func (e *BusyError) Error() string {
	where := "another process"
	if e.Local {
		where = "this process"
	}
	return fmt.Sprintf("run lock busy: held by %s (run %s)", where, e.RunUID)
}

// RetryDelay is how long to wait before the next try, as the policy's busyRetry
// says, jitter included.
func (e *BusyError) RetryDelay() time.Duration { return e.delay }

// RetryClass is the class of the retry in metrics and logs.
func (*BusyError) RetryClass() string { return "lock_busy" }

// UnavailableError is returned by Acquire when Redis cannot be used: taking fails closed. Retry
// after RetryDelay. It wraps the cause.
type UnavailableError struct {
	// RunUID is the run whose lock was not taken.
	RunUID string
	// OneRun says that Redis answered, with an error that concerns this run's keys: others are most
	// likely not affected.
	OneRun bool

	cause error
	delay time.Duration
}

// Error implements error.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("lock store unavailable (run %s): %v", e.RunUID, e.cause)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.cause }

// RetryDelay is how long to wait before the next try: a second or so, spread so that runs do not
// come back as one wave.
func (e *UnavailableError) RetryDelay() time.Duration { return e.delay }

// RetryClass is the class of the retry in metrics and logs.
func (*UnavailableError) RetryClass() string { return "store_unavailable" }

// errLate is the cause of an UnavailableError when the reply to a take came after the lease's
// validity had ended.
var errLate = errors.New("the reply came after the lease had ended")
