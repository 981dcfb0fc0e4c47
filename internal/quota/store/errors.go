// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels.
var (
	// ErrRebuildLost is returned by FinishRebuild and FinishRebuildKeys when the data was lost, or
	// the server restarted or replaced, since the rebuild began. Begin anew, with a new list.
	ErrRebuildLost = errors.New("admission data was lost again during its rebuild")
	// ErrInvalidRequest is returned for names that no object can have. Not worth a retry.
	ErrInvalidRequest = errors.New("invalid admission request")
)

// Bases of the waits before another try; each is spread by +-20 %.
const (
	unavailableDelay = time.Second
	busyDelay        = 500 * time.Millisecond
	rebuildingDelay  = time.Second
)

// spreadFraction is how far waits are spread to either side.
const spreadFraction = 0.2

// UnavailableError is returned when Redis cannot be used, or its answer is unknown: nothing may be
// admitted on it. Retry after RetryDelay. It wraps the cause.
type UnavailableError struct {
	// Key is what was asked for; without a policy for idempotency keys.
	Key Key

	cause error
	delay time.Duration
}

// Error implements error.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("admission unavailable (%s): %v", e.Key, e.cause)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.cause }

// Reason is the reason of the condition Admitted.
func (*UnavailableError) Reason() string { return "AdmissionUnavailable" }

// RetryDelay is how long to wait before the next try.
func (e *UnavailableError) RetryDelay() time.Duration { return e.delay }

// RetryClass is the class of the retry in metrics and logs.
func (*UnavailableError) RetryClass() string { return "store_unavailable" }

// BusyError is returned with strategy Lock when the lock of the tenant was not got within its
// MaxWait, or was lost before the decision. Nothing was decided. Retry after RetryDelay.
type BusyError struct {
	// Key is what was asked for.
	Key Key
	// Waited is how long the lock was tried for.
	Waited time.Duration

	delay time.Duration
}

// Error implements error.
func (e *BusyError) Error() string {
	return fmt.Sprintf("admission busy (%s): the lock was not free for %s", e.Key, e.Waited.Round(time.Millisecond))
}

// Reason is the reason of the condition Admitted.
func (*BusyError) Reason() string { return "AdmissionBusy" }

// RetryDelay is how long to wait before the next try.
func (e *BusyError) RetryDelay() time.Duration { return e.delay }

// RetryClass is the class of the retry in metrics and logs.
func (*BusyError) RetryClass() string { return "lock_busy" }

// RebuildReason says why data is closed.
type RebuildReason string

// The reasons.
const (
	// RebuildMissing: there is no data: it was never used, is long unused, or was lost.
	RebuildMissing RebuildReason = "missing"
	// RebuildServer: it was written by another server: the server was restarted, or
	// a replica promoted.
	RebuildServer RebuildReason = "server"
	// RebuildOlder: it is older than what this process has seen: a server came back that was
	// out of use.
	RebuildOlder RebuildReason = "older"
	// RebuildUnderWay: somebody began a rebuild.
	RebuildUnderWay RebuildReason = "rebuilding"
)

// String says it to people.
func (r RebuildReason) String() string {
	switch r {
	case RebuildMissing:
		return "Redis has no data of it"
	case RebuildServer:
		return "Redis was restarted or replaced"
	case RebuildOlder:
		return "Redis has older data than before"
	case RebuildUnderWay:
		return "a rebuild is under way"
	default:
		return string(r)
	}
}

// RebuildingError is returned while data is closed: what Redis has may not be what there is. It
// opens with a rebuild, which is up to the caller. Retry after that, or after RetryDelay if
// somebody else does it.
type RebuildingError struct {
	// Key is what was asked for; without a policy for idempotency keys.
	Key Key
	// Why says why.
	Why RebuildReason

	delay time.Duration
}

// Error implements error.
func (e *RebuildingError) Error() string {
	return fmt.Sprintf("admission must be rebuilt (%s): %s", e.Key, e.Why)
}

// Reason is the reason of the condition Admitted.
func (*RebuildingError) Reason() string { return "AdmissionRebuilding" }

// RetryDelay is how long to wait before the next try.
func (e *RebuildingError) RetryDelay() time.Duration { return e.delay }

// RetryClass is the class of the retry in metrics and logs.
func (*RebuildingError) RetryClass() string { return "admission_rebuilding" }

// Unusable says whether Redis could not be used. That its data is closed is no such failure:
// somebody has to rebuild it soon.
func Unusable(err error) bool {
	_, unavailable := errors.AsType[*UnavailableError](err)
	_, closed := errors.AsType[*RebuildingError](err)
	return unavailable && !closed
}

func (g *Store) unavailable(k Key, cause error) error {
	return &UnavailableError{Key: k, cause: g.opts.Explain(cause), delay: g.spread(unavailableDelay)}
}

func (g *Store) busy(k Key, waited time.Duration) error {
	return &BusyError{Key: k, Waited: waited, delay: g.spread(busyDelay)}
}

// spread is uniform in [0.8, 1.2] times d.
func (g *Store) spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - spreadFraction + 2*spreadFraction*g.opts.Spread()))
}
