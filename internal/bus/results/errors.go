// SPDX-License-Identifier: Apache-2.0

package results

import (
	"errors"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// Sentinels.
var (
	// ErrDrained: Settle came after Consume had given the message back. It will be delivered again.
	ErrDrained = errors.New("delivery was given back by the drain")
	// ErrBadToken: a result does not carry the token of its job. Such results become dead letters.
	ErrBadToken = errors.New("token is missing or wrong")

	// errMessageGone: a message that was to become a dead letter is not in its stream any more. If
	// it is after all, it is delivered again.
	errMessageGone = errors.New("the message is not in its stream any more")
)

// CountsAsFailure says whether a delivery that ended with a class counts for the budget of its
// result: processing it failed. Contention, back-pressure, an outage or a shutdown say nothing
// about the result, and must never make it a dead letter.
func CountsAsFailure(class string) bool {
	switch class {
	case bus.ClassPublishFailed, bus.ClassAhead, bus.ClassUnknown:
		return true
	default:
		return false
	}
}

// PermanentError marks a message which no retry can help. See Permanent.
type PermanentError struct {
	Reason string
	Err    error
}

func (e *PermanentError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent marks err, so that Settle makes its message a dead letter. reason is one word for
// subjects and metrics, from a fixed set in code; it must not contain data. A nil err stands for
// the reason alone.
func Permanent(reason string, err error) error {
	if err == nil {
		err = errors.New("no retry can help")
	}
	return &PermanentError{Reason: reason, Err: err}
}
