// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Sentinels. "Retry" says whether the same call may succeed later.
var (
	// ErrUnreachable: there is no connection to NATS. Retry.
	ErrUnreachable = errors.New("NATS is unreachable")
	// ErrNoRoom: NATS answers, and refuses what is to be stored: a stream, the account or the
	// server is full. Retry: room comes as jobs are done and outputs deleted, or somebody makes it.
	ErrNoRoom = errors.New("NATS has no room for it")
	// ErrMaxPayload: a message is larger than the server's max_payload. Retry: the server's
	// setting can change.
	ErrMaxPayload = errors.New("message exceeds the server's maximum payload")
	// ErrInvalidJob: topic, job id, run UID or input is malformed. No retry.
	ErrInvalidJob = errors.New("invalid job")
	// ErrConfig: Config, or a key, is unusable. No retry.
	ErrConfig = errors.New("invalid bus configuration")
	// ErrStreamLost: a message was to be settled or deleted after its stream had lost data. If it
	// is still there, it is delivered again.
	ErrStreamLost = errors.New("the stream lost data after the message had come")
)

// Classes of delays which the bus itself asks for, and those it knows from others: the values of
// the metrics' label. CountsAsFailure says which of them count for a result's budget of deliveries.
const (
	ClassPublishFailed    = "publish_failed"
	ClassLockBusy         = "lock_busy"
	ClassStoreUnavailable = "store_unavailable"
	ClassWorkerRequested  = "worker_requested"
	ClassShutdown         = "shutdown"
	ClassAhead            = "ahead"         // of an attempt that the run does not know yet
	ClassInboxFull        = "inbox_full"    // no room to let it wait
	ClassNeedsNewer       = "needs_newer"   // its run needs an operator of a newer version
	ClassCauseAwaited     = "cause_awaited" // its attempt was dispatched ahead of status, and what it follows from has not come yet
	ClassUnknown          = "unknown"
)

// RetryError is a failure that passes with time. It is part of the retry contract: RetryDelay and
// RetryClass are what a handler's error needs to become a NAK with delay.
type RetryError struct {
	Class string
	Delay time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// RetryDelay is how long to wait before the next try.
func (e *RetryError) RetryDelay() time.Duration { return e.Delay }

// RetryClass is the kind of the wait.
func (e *RetryError) RetryClass() string { return e.Class }

// Retryable wraps a failed NATS operation. What cannot be told apart from a passing failure is one.
func (c *Conn) Retryable(what string, err error) error {
	delay := retryDelay
	switch {
	case errors.Is(err, ErrNoRoom):
		delay = noRoomDelay
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: %w", ErrMaxPayload, err)
	case errors.Is(err, ErrUnreachable):
	case !c.Reachable(), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrConnectionClosed):
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return &RetryError{Class: ClassPublishFailed, Delay: c.Jittered(delay), Err: fmt.Errorf("%s: %w", what, err)}
}

// CheckRunUID keeps out of subjects what names no run: ErrInvalidJob.
func CheckRunUID(uid string) error {
	if _, err := protocol.ParseJobID(protocol.JobID{RunUID: uid, Step: "s", Item: protocol.NoItem, Attempt: 1}.String()); err != nil {
		return fmt.Errorf("%w: run UID %q", ErrInvalidJob, uid)
	}
	return nil
}
