// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// otherError is an error of another package: it knows the contract's methods and nothing
// of this package.
type otherError struct {
	delay time.Duration
	class string
}

func (e *otherError) Error() string             { return "busy" }
func (e *otherError) RetryDelay() time.Duration { return e.delay }
func (e *otherError) RetryClass() string        { return e.class }

type delayOnly time.Duration

func (d delayOnly) Error() string             { return "later" }
func (d delayOnly) RetryDelay() time.Duration { return time.Duration(d) }

type classOnly string

func (c classOnly) Error() string      { return string(c) }
func (c classOnly) RetryClass() string { return string(c) }

func TestTheRetryContractIsTotal(t *testing.T) {
	const fallback = 2 * time.Second
	busy := &otherError{delay: 500 * time.Millisecond, class: bus.ClassLockBusy}
	poison := Permanent("bad_output", errors.New("no"))
	nak := func(d time.Duration, class string) verdict { return verdict{action: actionNak, delay: d, class: class} }
	dead := func(reason string) verdict { return verdict{action: actionDeadLetter, reason: reason} }
	for name, c := range map[string]struct {
		err  error
		want verdict
	}{
		"success is acknowledged":                     {nil, verdict{action: actionAck}},
		"a delay is kept":                             {busy, nak(500*time.Millisecond, bus.ClassLockBusy)},
		"a delay survives %w":                         {fmt.Errorf("a: %w", fmt.Errorf("b: %w", busy)), nak(500*time.Millisecond, bus.ClassLockBusy)},
		"a delay survives errors.Join":                {errors.Join(errors.New("x"), busy), nak(500*time.Millisecond, bus.ClassLockBusy)},
		"a delay is lost in %v":                       {fmt.Errorf("a: %v", busy), nak(fallback, bus.ClassUnknown)}, //nolint:errorlint // what the linter is for
		"no delay means at once":                      {delayOnly(0), nak(0, bus.ClassUnknown)},
		"a negative delay means at once":              {delayOnly(-time.Hour), nak(0, bus.ClassUnknown)},
		"an endless delay is capped":                  {delayOnly(math.MaxInt64), nak(24*time.Hour, bus.ClassUnknown)},
		"a class without delay waits the default":     {classOnly(bus.ClassShutdown), nak(fallback, bus.ClassShutdown)},
		"a result from the future keeps its class":    {&otherError{time.Second, "ahead"}, nak(time.Second, bus.ClassAhead)},
		"a full inbox keeps its class":                {&otherError{time.Second, "inbox_full"}, nak(time.Second, bus.ClassInboxFull)},
		"a class that nobody knows is no label":       {&otherError{time.Second, "run-4711"}, nak(time.Second, bus.ClassUnknown)},
		"a failed publish of ours keeps its delay":    {&bus.RetryError{Class: bus.ClassPublishFailed, Delay: time.Second, Err: bus.ErrUnreachable}, nak(time.Second, bus.ClassPublishFailed)},
		"an unknown error is delivered again":         {errors.New("boom"), nak(fallback, bus.ClassUnknown)},
		"a cancelled context is delivered again":      {fmt.Errorf("x: %w", context.Canceled), nak(fallback, bus.ClassShutdown)},
		"a deadline is delivered again":               {context.DeadlineExceeded, nak(fallback, bus.ClassUnknown)},
		"a permanent error becomes a dead letter":     {poison, dead("bad_output")},
		"a wrapped permanent error keeps its meaning": {fmt.Errorf("a: %w", fmt.Errorf("b: %w", poison)), dead("bad_output")},
		"permanent wins over a delay outside": {
			&bus.RetryError{Class: bus.ClassLockBusy, Delay: time.Second, Err: poison}, dead("bad_output"),
		},
		"permanent wins over a delay inside":   {Permanent("bad_output", busy), dead("bad_output")},
		"permanent wins over a delay beside":   {errors.Join(busy, poison), dead("bad_output")},
		"a reason is made one word":            {Permanent("a.b >*", nil), dead("a_b___")},
		"a reason may be absent":               {Permanent("", nil), dead("unspecified")},
		"permanent of nothing is still a word": {Permanent("x", nil), dead("x")},
	} {
		t.Run(name, func(t *testing.T) {
			// mutation: looking for RetryDelay before Permanent, err.(interface) for errors.As, or
			// a default of ack makes this fail
			if diff := cmp.Diff(c.want, verdictOf(c.err, fallback), cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
