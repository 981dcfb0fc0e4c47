package bus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// otherError is an error of another package: it knows the contract's methods and nothing of this package.
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
	busy := &otherError{delay: 500 * time.Millisecond, class: ClassLockBusy}
	poison := Permanent("bad_output", errors.New("no"))
	nak := func(d time.Duration, class string) verdict { return verdict{action: actionNak, delay: d, class: class} }
	dead := func(reason string) verdict { return verdict{action: actionDeadLetter, reason: reason} }
	for name, c := range map[string]struct {
		err  error
		want verdict
	}{
		"success is acknowledged":                     {nil, verdict{action: actionAck}},
		"a delay is kept":                             {busy, nak(500*time.Millisecond, ClassLockBusy)},
		"a delay survives %w":                         {fmt.Errorf("a: %w", fmt.Errorf("b: %w", busy)), nak(500*time.Millisecond, ClassLockBusy)},
		"a delay survives errors.Join":                {errors.Join(errors.New("x"), busy), nak(500*time.Millisecond, ClassLockBusy)},
		"a delay is lost in %v":                       {fmt.Errorf("a: %v", busy), nak(fallback, ClassUnknown)}, //nolint:errorlint // what the linter is for
		"no delay means at once":                      {delayOnly(0), nak(0, ClassUnknown)},
		"a negative delay means at once":              {delayOnly(-time.Hour), nak(0, ClassUnknown)},
		"an endless delay is capped":                  {delayOnly(math.MaxInt64), nak(24*time.Hour, ClassUnknown)},
		"a class without delay waits the default":     {classOnly(ClassShutdown), nak(fallback, ClassShutdown)},
		"a result from the future keeps its class":    {&otherError{time.Second, "ahead"}, nak(time.Second, ClassAhead)},
		"a full inbox keeps its class":                {&otherError{time.Second, "inbox_full"}, nak(time.Second, ClassInboxFull)},
		"a class that nobody knows is no label":       {&otherError{time.Second, "run-4711"}, nak(time.Second, ClassUnknown)},
		"a failed publish of ours keeps its delay":    {&RetryError{ClassPublishFailed, time.Second, ErrUnreachable}, nak(time.Second, ClassPublishFailed)},
		"an unknown error is delivered again":         {errors.New("boom"), nak(fallback, ClassUnknown)},
		"a cancelled context is delivered again":      {fmt.Errorf("x: %w", context.Canceled), nak(fallback, ClassShutdown)},
		"a deadline is delivered again":               {context.DeadlineExceeded, nak(fallback, ClassUnknown)},
		"a permanent error becomes a dead letter":     {poison, dead("bad_output")},
		"a wrapped permanent error keeps its meaning": {fmt.Errorf("a: %w", fmt.Errorf("b: %w", poison)), dead("bad_output")},
		"permanent wins over a delay outside": {
			&RetryError{ClassLockBusy, time.Second, poison}, dead("bad_output"),
		},
		"permanent wins over a delay inside":   {Permanent("bad_output", busy), dead("bad_output")},
		"permanent wins over a delay beside":   {errors.Join(busy, poison), dead("bad_output")},
		"a reason is made one word":            {Permanent("a.b >*", nil), dead("a_b___")},
		"a reason may be absent":               {Permanent("", nil), dead("unspecified")},
		"permanent of nothing is still a word": {Permanent("x", nil), dead("x")},
	} {
		t.Run(name, func(t *testing.T) {
			// mutation: looking for RetryDelay before Permanent, err.(interface) for errors.As, or a default of ack makes this fail
			if diff := cmp.Diff(c.want, verdictOf(c.err, fallback), cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJitterStaysWithinAFifth(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: 800 * time.Millisecond, 0.5: time.Second, 1: 1200 * time.Millisecond} {
		b := &Bus{config: Config{Rand: func() float64 { return r }}}
		if got := b.jittered(time.Second).Round(time.Millisecond); got != want {
			t.Errorf("jittered at %v is %s, want %s", r, got, want)
		}
	}
}
