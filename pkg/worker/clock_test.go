// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// setClock is a clock that can be set. Its timers, and those of contexts, do not hear of it, as
// those of a machine do not.
type setClock struct {
	clock.RealClock
	ahead atomic.Int64 // nanoseconds
}

func (c *setClock) Now() time.Time {
	return c.RealClock.Now().Add(time.Duration(c.ahead.Load()))
}

func (c *setClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// The clock is set forward while a handler is at work, or the machine slept: a timer that was made
// before does not fire for an hour.
//
// mutation: process whose pings do not look at the clock makes this time out.
func TestAJobEndsWhenTheClockIsSetBeyondItsDeadline(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	now := &setClock{}
	w := o.worker()
	w.clock = now
	causes := make(chan error, 1)
	w.Handle("a", func(ctx context.Context, _ Job) (any, error) {
		now.ahead.Store(int64(2 * time.Hour))
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return "late", nil
	})
	o.start(w)
	o.publish("a", job("a"), `{}`, func(h nats.Header) {
		h.Set(protocol.HeaderDeadline, time.Now().Add(time.Hour).Format(time.RFC3339Nano))
	})
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
	if cause := <-causes; cause != context.DeadlineExceeded { //nolint:errorlint // it is documented
		t.Errorf("the handler is told %v", cause)
	}
	if got := o.results(1); got[0].Result.Status != protocol.StatusStarted || !strings.Contains(strings.Join(o.logs.all(), "\n"), saidLate) {
		t.Errorf("got %+v\n%s", got[0].Result, strings.Join(o.logs.all(), "\n"))
	}
}

// The clock is set back while a handler is at work: its context ends an hour before the deadline.
//
// mutation: work that has an error for a failure then publishes it, and nobody does the job.
func TestAContextThatEndsBeforeTheDeadlineIsNoFailure(t *testing.T) {
	o := newOperator(t)
	o.topic("a")
	now := &setClock{}
	now.ahead.Store(int64(-time.Hour))
	w := o.worker()
	w.clock = now
	w.Handle("a", func(ctx context.Context, j Job) (any, error) {
		if j.Delivery == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return "done", nil
	})
	o.start(w)
	o.publish("a", job("a"), `{}`, func(h nats.Header) {
		h.Set(protocol.HeaderDeadline, time.Now().Add(time.Second).Format(time.RFC3339Nano))
	})
	if got := o.results(2)[1].Result; got.Status != protocol.StatusSucceeded || string(got.Output) != `"done"` {
		t.Errorf("got %+v, %v", got, got.Error)
	}
	o.eventually("the job is acknowledged", func() bool { return o.jobs() == 0 })
}
