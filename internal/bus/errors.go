package bus

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Sentinels. "Retry" says whether the same call may succeed later.
var (
	// ErrUnreachable: there is no connection to NATS. Retry.
	ErrUnreachable = errors.New("NATS is unreachable")
	// ErrMaxPayload: a message is larger than the server's max_payload. Retry: the server's setting can change.
	ErrMaxPayload = errors.New("message exceeds the server's maximum payload")
	// ErrInputTooLarge: a job's input exceeds MaxInputBytes. No retry: it is the user's mistake.
	ErrInputTooLarge = errors.New("job input is too large")
	// ErrInvalidJob: topic, job id or input is malformed. No retry.
	ErrInvalidJob = errors.New("invalid job")
	// ErrTooManyTopics: the job's topic is new, and there are Config.MaxTopics. Retry: unused ones go after Config.TopicInactivity.
	ErrTooManyTopics = errors.New("too many topics")
	// ErrDeadlinePassed: the job's deadline is over, nobody would wait for its result. No retry.
	ErrDeadlinePassed = errors.New("deadline of the job has passed")
	// ErrRecentlyGone: a job is neither queued nor answered, but the server still remembers its Msg-Id and would drop it as a
	// duplicate. Retry: after the duplicate window it is published.
	ErrRecentlyGone = errors.New("job left the queue without a result a moment ago")
	// ErrDrained: Settle came after Consume had given the message back. It will be delivered again.
	ErrDrained = errors.New("delivery was given back by the drain")
	// ErrBadToken: a result does not carry the token of its job. Such results become dead letters.
	ErrBadToken = errors.New("token is missing or wrong")
	// ErrPayloadUnusable: an output is not in the object store, or not all of it is. No retry: it is a fact, and no outage.
	ErrPayloadUnusable = errors.New("the output is not in the object store")
	// ErrConfig: Config is unusable. No retry.
	ErrConfig = errors.New("invalid bus configuration")

	// errFenceGone: the fence message of an epoch is not in the stream, as far as the server knows that answered. Retry.
	errFenceGone = errors.New("the fence message of the job is not there")
	// errStreamLost: a message was to be settled after its stream had lost data. If it is still there, it is delivered again.
	errStreamLost = errors.New("the stream lost data after the message had come")
	// errMessageGone: a message that was to become a dead letter is not in its stream any more. If it is after all, it is delivered
	// again.
	errMessageGone = errors.New("the message is not in its stream any more")
)

// Classes of delays which the bus itself asks for, and those it knows from others: the values of the metrics' label. CountsAsFailure
// says which of them count for a result's budget of deliveries.
const (
	ClassPublishFailed    = "publish_failed"
	ClassLockBusy         = "lock_busy"
	ClassStoreUnavailable = "store_unavailable"
	ClassWorkerRequested  = "worker_requested"
	ClassShutdown         = "shutdown"
	ClassAhead            = "ahead"       // of an attempt that the run does not know yet
	ClassInboxFull        = "inbox_full"  // no room to let it wait
	ClassNeedsNewer       = "needs_newer" // its run needs an operator of a newer version
	ClassUnknown          = "unknown"
)

// Reasons of dead letters that the owner of the runs asks for, with Permanent. The bus has two of its own, see deadletter.go.
const (
	// ReasonResultRejected: the token is valid, the body is no result. Its attempt has failed.
	ReasonResultRejected = "ResultRejected"
	// ReasonDeliveriesExhausted: processing the result failed as often as its run's policy allows.
	ReasonDeliveriesExhausted = "DeliveriesExhausted"
)

// CountsAsFailure says whether a delivery that ended with a class counts for the budget of its result: processing it failed.
// Contention, back-pressure, an outage or a shutdown say nothing about the result, and must never make it a dead letter.
func CountsAsFailure(class string) bool {
	switch class {
	case ClassPublishFailed, ClassAhead, ClassUnknown:
		return true
	default:
		return false
	}
}

// RetryError is a failure that passes with time. It is part of the retry contract: RetryDelay and RetryClass are what a
// handler's error needs to become a NAK with delay.
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

// PermanentError marks a message which no retry can help. See Permanent.
type PermanentError struct {
	Reason string
	Err    error
}

func (e *PermanentError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent marks err, so that Settle makes its message a dead letter. reason is one word for subjects and metrics, from a
// fixed set in code; it must not contain data. A nil err stands for the reason alone.
func Permanent(reason string, err error) error {
	if err == nil {
		err = errors.New("no retry can help")
	}
	return &PermanentError{Reason: reason, Err: err}
}

// FencedError refuses the dispatch of an attempt: a writer with a higher fence has begun to recover it. Whoever gets it is not the holder
// any more, or has to become it anew with a fence above By. The same call never succeeds later.
type FencedError struct {
	ID        protocol.JobID
	Fence, By int64 // of the caller, and of the other
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("job %s: a writer with fence %d has taken over from fence %d", e.ID, e.By, e.Fence)
}

// Drift is one setting of a stream or consumer that is not as Config says.
type Drift struct {
	Object string // name of the stream or consumer
	Field  string // name of the setting
	Want   string // as configured
	Got    string // as found on the server
}

// DriftError lists all drift that EnsureStreams found. The streams exist and work; somebody has to decide which side is right.
type DriftError struct{ Drifts []Drift }

func (e *DriftError) Error() string {
	parts := make([]string, 0, len(e.Drifts))
	for _, d := range e.Drifts {
		parts = append(parts, fmt.Sprintf("%s: %s is %s, configured is %s", d.Object, d.Field, d.Got, d.Want))
	}
	return "configuration drift: " + strings.Join(parts, "; ")
}

// retryable wraps a failed NATS operation. What cannot be told apart from a passing failure is one.
func (b *Bus) retryable(what string, err error) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: %w", ErrMaxPayload, err)
	case errors.Is(err, ErrUnreachable):
	case !b.reachable(), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrConnectionClosed):
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return &RetryError{Class: ClassPublishFailed, Delay: b.jittered(publishRetryDelay), Err: fmt.Errorf("%s: %w", what, err)}
}

// wrongSequence tells that the expected last sequence was not met, or that a replicated stream saw a rival still on its way: whether
// that one will be stored is open.
func wrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
