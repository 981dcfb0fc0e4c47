// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/liveness"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const jobsTopic = "web.fetch"

// shift is a topic with its workers, on a real server.
type shift struct {
	*testing.T
	server *natstest.Server
	bus    *Queue
}

// newShift makes the consumer of the topic before the bus does, so that its AckWait is short, and
// publishes jobs 1 to n.
func newShift(t *testing.T, n int, adjust ...func(*config)) *shift {
	t.Helper()
	return newShiftOf(t, 600*time.Millisecond, n, adjust...)
}

// newShiftOf is newShift with another AckWait.
func newShiftOf(t *testing.T, ackWait time.Duration, n int, adjust ...func(*config)) *shift {
	t.Helper()
	s := &shift{T: t, server: natstest.Start(t)}
	s.bus = newQueue(t, s.server, adjust...)
	c := s.bus.topics.config(jobsTopic)
	c.AckWait = ackWait
	if _, err := s.bus.conn.JetStream.CreateConsumer(t.Context(), s.bus.conn.Names.JobsStream(), c); err != nil {
		t.Fatalf("consumer: %v", err)
	}
	s.publish(1, n)
	return s
}

func (s *shift) publish(from, to int) {
	s.Helper()
	for i := from; i <= to; i++ {
		if err := s.bus.Publish(s.Context(), testJob(i)); err != nil {
			s.Fatalf("publish: %v", err)
		}
	}
}

func (s *shift) look() liveness.Workers {
	s.Helper()
	w, err := s.bus.Workers(s.Context(), jobsTopic)
	if err != nil {
		s.Fatalf("workers: %v", err)
	}
	return w
}

// sees waits until an answer is as wanted, and gives it.
func (s *shift) sees(what string, ok func(liveness.Workers) bool) liveness.Workers {
	s.Helper()
	var w liveness.Workers
	bustest.Eventually(s, what, func() bool { w = s.look(); return ok(w) })
	return w
}

// figures compares all but the times and the bound.
func (s *shift) figures(got, want liveness.Workers) {
	s.Helper()
	times := cmpopts.IgnoreFields(liveness.Workers{}, "LastSign", "LastAck", "At", "AckWait", "MaxBusy")
	if diff := cmp.Diff(want, got, times); diff != "" {
		s.Errorf("workers (-want +got):\n%s", diff)
	}
}

func (s *shift) client() *nats.Conn {
	s.Helper()
	nc, err := nats.Connect(s.server.URL(), natstest.Patient())
	if err != nil {
		s.Fatalf("connect: %v", err)
	}
	s.Cleanup(nc.Close)
	return nc
}

// works runs a worker of the SDK until stop, or until the test ends.
func (s *shift) works(h worker.Handler, concurrency int) (stop context.CancelFunc) {
	s.Helper()
	w := worker.New(s.client(), worker.Options{BindInterval: 10 * time.Millisecond, GracePeriod: -1})
	w.Handle(jobsTopic, h, worker.Concurrency(concurrency))
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := bustest.Receive(s, "the worker ends", done, 1)[0]; err != nil {
			s.Errorf("worker: %v", err)
		}
	})
	return cancel
}

// pulls asks for one job without an SDK, and gives what comes.
func (s *shift) pulls(nc *nats.Conn, expires time.Duration) *nats.Subscription {
	s.Helper()
	sub, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		s.Fatalf("subscribe: %v", err)
	}
	next := "$JS.API.CONSUMER.MSG.NEXT." + s.bus.conn.Names.JobsStream() + "." + protocol.Durable(jobsTopic)
	if err := nc.PublishRequest(next, sub.Subject, fmt.Appendf(nil, `{"batch":1,"expires":%d}`, expires)); err != nil {
		s.Fatalf("pull: %v", err)
	}
	return sub
}

func untilStopped(ctx context.Context, _ worker.Job) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// mutation: Exists that is always true, or an error for what is absent, makes this fail.
func TestThatThereIsNoConsumerIsAnAnswer(t *testing.T) {
	t.Parallel()
	b := newQueue(t, natstest.Start(t))
	w, err := b.Workers(t.Context(), "never.used")
	if diff := cmp.Diff(liveness.Workers{}, w); diff != "" || err != nil {
		t.Errorf("no consumer: %v (-want +got):\n%s", err, diff)
	}
	if err := b.conn.JetStream.DeleteStream(t.Context(), b.conn.Names.JobsStream()); err != nil {
		t.Fatal(err)
	}
	w, err = b.Workers(t.Context(), "never.used")
	if diff := cmp.Diff(liveness.Workers{}, w); diff != "" || err != nil {
		t.Errorf("no stream: %v (-want +got):\n%s", err, diff)
	}
}

// mutation: an empty answer for any error makes this fail.
func TestThatNATSDoesNotAnswerIsNoAnswerAboutWorkers(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newQueue(t, s)
	if _, err := b.Workers(t.Context(), "a.*"); !errors.Is(err, bus.ErrInvalidJob) {
		t.Errorf("a wildcard: got %v, want bus.ErrInvalidJob", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Workers(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx has ended: got %v", err)
	}
	s.Shutdown()
	bustest.Eventually(t, "the bus notices", func() bool { return !b.conn.Connected() })
	var retry *bus.RetryError
	if _, err := b.Workers(t.Context(), "a"); !errors.As(err, &retry) || !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("no server: got %v, want a *bus.RetryError with bus.ErrUnreachable", err)
	}
}

func TestNobodyPulls(t *testing.T) {
	t.Parallel()
	s := newShift(t, 3)
	// A consumer counts what waits for it shortly after the stream has kept it.
	w := s.sees("all three wait", func(w liveness.Workers) bool { return w.Queued >= 3 })
	s.figures(w, liveness.Workers{Exists: true, Queued: 3})
	if !w.LastSign.IsZero() || !w.LastAck.IsZero() || w.At.IsZero() || w.AckWait != 600*time.Millisecond {
		t.Errorf("times: %+v", w)
	}
}

// mutation: Reached without a look at Deliveries makes this fail: the server passes over them, and
// says how far it came (one that keeps nothing on disk at least).
func TestJobsOfOtherTopicsAreNoJobs(t *testing.T) {
	t.Parallel()
	s := newShift(t, 0, func(c *config) { c.MemoryStorage = true })
	s.pulls(s.client(), time.Minute)
	s.sees("it pulls", func(w liveness.Workers) bool { return w.Pulling == 1 })
	for i := range 3 {
		other := testJob(i)
		other.Topic = "web.fetch.other"
		if err := s.bus.Publish(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	s.pulls(s.client(), time.Minute)
	s.figures(s.sees("both pull", func(w liveness.Workers) bool { return w.Pulling == 2 }), liveness.Workers{Exists: true, Pulling: 2})
}

func TestAnIdleWorkerPulls(t *testing.T) {
	t.Parallel()
	s := newShift(t, 2)
	s.works(func(context.Context, worker.Job) (any, error) { return nil, nil }, 1)
	w := s.sees("it did its jobs and pulls", func(w liveness.Workers) bool { return w.Pulling > 0 && !w.LastAck.IsZero() && w.Busy == 0 })
	s.figures(w, liveness.Workers{Exists: true, Pulling: 1, Deliveries: 2, Reached: 2})
	if w.LastAck.Before(w.LastSign) || w.At.Before(w.LastAck) {
		t.Errorf("times: %+v", w)
	}
}

// mutation: Queued that is NumAckPending, or Busy that is NumPending, makes this fail.
func TestABusyWorkerDoesNotPullAndGivesSigns(t *testing.T) {
	t.Parallel()
	s := newShiftOf(t, 3*time.Second, 3) // a sign of life may be late by two
	s.works(untilStopped, 1)
	w := s.sees("it has a job", func(w liveness.Workers) bool { return w.Busy == 1 && w.Pulling == 0 })
	s.figures(w, liveness.Workers{Exists: true, Queued: 2, Busy: 1, Deliveries: 1, Reached: 1})
	// It says that the job is in progress for several times AckWait; no redelivery comes of it.
	later := s.sees("it gives signs", func(now liveness.Workers) bool { return now.LastSign.Sub(w.LastSign) > 2*now.AckWait })
	s.figures(later, w)
	if !later.LastAck.IsZero() {
		t.Errorf("last ack: %s", later.LastAck)
	}
}

// With as many jobs unanswered as may be, workers pull in vain.
func TestWorkersPullInVainAtTheLimit(t *testing.T) {
	t.Parallel()
	s := newShift(t, 3, func(c *config) { c.MaxAckPending = 1 })
	s.works(untilStopped, 2)
	w := s.sees("one has a job and one pulls", func(w liveness.Workers) bool { return w.Busy == 1 && w.Pulling == 1 })
	s.figures(w, liveness.Workers{Exists: true, Pulling: 1, Queued: 2, Busy: 1, Deliveries: 1, Reached: 1})
	if w.MaxBusy != 1 {
		t.Errorf("the bound is %d", w.MaxBusy)
	}
}

// The connection's end takes the request with it, long before it expires.
func TestAWorkerThatWentDoesNotPull(t *testing.T) {
	t.Parallel()
	s := newShift(t, 0)
	nc := s.client()
	s.pulls(nc, time.Hour)
	s.sees("it pulls", func(w liveness.Workers) bool { return w.Pulling == 1 })
	nc.Close()
	s.sees("it is gone", func(w liveness.Workers) bool { return w.Pulling == 0 })
}

// That is how long a worker counts whose machine vanished without closing its connection.
func TestARequestThatExpiredDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newShift(t, 0)
	s.pulls(s.client(), 5*time.Second) // so long that it is seen
	s.sees("it pulls", func(w liveness.Workers) bool { return w.Pulling == 1 })
	s.sees("its request expired", func(w liveness.Workers) bool { return w.Pulling == 0 })
}

func TestAWorkerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	s := newShift(t, 1)
	nc := s.client()
	for range 3 {
		if _, err := s.pulls(nc, time.Minute).NextMsg(bustest.Patience); err != nil {
			t.Fatalf("pull: %v", err)
		}
	}
	w := s.look()
	s.figures(w, liveness.Workers{Exists: true, Busy: 1, Deliveries: 3, Reached: 1})
	// It goes. For the server its job is in work for ever; only the sign gets old.
	nc.Close()
	w = s.sees("no sign for several times AckWait", func(w liveness.Workers) bool { return w.At.Sub(w.LastSign) > 3*w.AckWait })
	s.figures(w, liveness.Workers{Exists: true, Busy: 1, Deliveries: 3, Reached: 1})
	if !w.LastAck.IsZero() {
		t.Errorf("last ack: %s", w.LastAck)
	}
}

// mutation: instant that gives the present for a missing time makes this fail.
func TestAServerThatStartedAnewHasForgottenTheTimes(t *testing.T) {
	t.Parallel()
	s := newShift(t, 1)
	if _, err := s.pulls(s.client(), time.Minute).NextMsg(bustest.Patience); err != nil {
		t.Fatal(err)
	}
	s.sees("the job is out", func(w liveness.Workers) bool { return w.Busy == 1 && !w.LastSign.IsZero() })
	s.server.Restart()
	bustest.Eventually(t, "the bus is back", s.bus.conn.Connected)
	var w liveness.Workers
	bustest.Eventually(t, "the consumer is back", func() bool {
		var err error
		w, err = s.bus.Workers(t.Context(), jobsTopic)
		return err == nil && w.Exists
	})
	s.figures(w, liveness.Workers{Exists: true, Busy: 1, Deliveries: 1, Reached: 1})
	if !w.LastSign.IsZero() {
		t.Errorf("last sign: %s", w.LastSign)
	}
}
