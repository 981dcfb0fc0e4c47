// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// maxNakDelay bounds what a handler may ask for. A longer delay overflows the server's clock and
// means "at once" there.
const maxNakDelay = 24 * time.Hour

// action is what becomes of a message.
type action int

const (
	actionAck action = iota
	actionNak
	actionDeadLetter
)

// verdict is the answer of the retry contract to a handler's error.
type verdict struct {
	action action
	delay  time.Duration // with actionNak; 0: at once
	class  string        // with actionNak
	reason string        // with actionDeadLetter
}

// verdictOf maps a handler's error. It is total: whatever is not explicit success ends in a
// redelivery or a dead letter. fallback is the delay for errors that do not ask for one.
func verdictOf(err error, fallback time.Duration) verdict {
	if err == nil {
		return verdict{action: actionAck}
	}
	if permanent, ok := errors.AsType[*PermanentError](err); ok {
		return verdict{action: actionDeadLetter, reason: token(permanent.Reason)}
	}
	v := verdict{action: actionNak, delay: fallback, class: classOf(err)}
	var delayed interface{ RetryDelay() time.Duration }
	if errors.As(err, &delayed) {
		v.delay = min(max(0, delayed.RetryDelay()), maxNakDelay)
	}
	return v
}

// unburied is what becomes of a message whose dead letter could not be stored.
func unburied(fallback time.Duration) verdict {
	return verdict{action: actionNak, delay: fallback, class: bus.ClassPublishFailed}
}

// classes are all classes of waits.
func classes() []string {
	return []string{
		bus.ClassLockBusy, bus.ClassStoreUnavailable, bus.ClassPublishFailed, bus.ClassWorkerRequested, bus.ClassShutdown, bus.ClassAhead,
		bus.ClassInboxFull, bus.ClassNeedsNewer, bus.ClassCauseAwaited, bus.ClassUnknown,
	}
}

// classOf gives the class for metrics and logs. Only known classes pass: a label must not grow with
// what errors say.
func classOf(err error) string {
	var classed interface{ RetryClass() string }
	if errors.As(err, &classed) {
		if c := classed.RetryClass(); slices.Contains(classes(), c) {
			return c
		}
		return bus.ClassUnknown
	}
	if errors.Is(err, context.Canceled) {
		return bus.ClassShutdown
	}
	return bus.ClassUnknown
}

const maxReasonLength = 40

const wordLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// token makes one subject token of a dead letter's reason: letters, digits, dashes and underscores.
func token(reason string) string {
	if reason == "" {
		return "unspecified"
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(wordLetters, r) {
			return r
		}
		return '_'
	}, reason[:min(len(reason), maxReasonLength)])
}
