// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// looked waits until the streams were looked at after all that happened before.
func looked(t *testing.T, b *broker) {
	t.Helper()
	bustest.Eventually(t, "the streams are looked at", func() bool { return b.CheckStreams(t.Context()) == nil })
}

func publishJobs(t *testing.T, b *broker, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := b.jobs.Publish(t.Context(), testJob(n)); err != nil {
			t.Fatalf("publish job %d: %v", n, err)
		}
	}
}

// Mutations that make this fail: no WatchStreams in Consume; no look by ensureStream ("by a publish
// of our own").
func TestALossOfDataIsNoticedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(t *testing.T, s *natstest.Server, b *broker)
		want map[string]float64
	}{
		"the server comes back empty": {
			lose: func(_ *testing.T, s *natstest.Server, _ *broker) { s.RestartEmpty() },
			want: map[string]float64{"jobs": 1, "results": 1},
		},
		"the server comes back in an earlier state": {
			lose: func(t *testing.T, s *natstest.Server, b *broker) {
				dir := s.CopyStore()
				bustest.Eventually(t, "connected", b.Connected)
				bustest.Eventually(t, "published", func() bool { return b.jobs.Publish(t.Context(), testJob(100)) == nil })
				s.RestartOn(dir)
			},
			want: map[string]float64{"jobs": 1, "results": 0},
		},
		"somebody else makes the streams anew": {
			lose: func(t *testing.T, _ *natstest.Server, b *broker) {
				bustest.Recreate(t, b.Conn, b.Names.JobsStream())
				bustest.Recreate(t, b.Conn, b.Names.ResultsStream())
				b.Look()
			},
			want: map[string]float64{"jobs": 1, "results": 1},
		},
		"the stream of jobs is made anew by a publish of our own": {
			lose: func(t *testing.T, _ *natstest.Server, b *broker) {
				if err := b.JetStream.DeleteStream(t.Context(), b.Names.JobsStream()); err != nil {
					t.Fatal(err)
				}
				publishJobs(t, b, 100, 100)
			},
			want: map[string]float64{"jobs": 1, "results": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			b := newBroker(t, s)
			publishJobs(t, b, 1, 3)
			got, _ := collect(t, b)
			bustest.Answer(t, b.Conn, bustest.JobID(1), bustest.Succeeded)
			settle(t, bustest.Receive(t, "the result", got, 1)[0], nil)
			c.lose(t, s, b)
			bustest.Receive(t, "the loss is told", b.LossNoticed(), 1)
			bustest.Eventually(t, "all of it is noticed", func() bool { return cmp.Equal(c.want, b.Counted()) })
			looked(t, b)
			looked(t, b)
			if diff := cmp.Diff(c.want, b.Counted()); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
			for n := 1; n <= 2; n++ { // the streams are in use again, with all that belongs to them
				bustest.Eventually(t, "recovered", func() bool {
					_, err := b.jobs.Recover(t.Context(), testJob(n))
					return err == nil
				})
			}
			bustest.Take(t, b.Conn, testJob(1).Topic)
			bustest.Answer(t, b.Conn, bustest.JobID(2), bustest.Succeeded)
			bustest.Receive(t, "a result after the loss", got, 1)
		})
	}
}

// Nobody looks at the stream between the crash of the machine and the jobs that make it as long
// as it was.
//
// mutation: Conn.Store without Stored makes this fail.
func TestALostEndIsNoticedAlthoughTheStreamIsAsLongAsBefore(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBroker(t, s)
	dir := s.CopyStore()
	bustest.Eventually(t, "connected", b.Connected)
	publishJobs(t, b, 1, 2)
	s.RestartOn(dir)
	bustest.Eventually(t, "connected", b.Connected)
	bustest.Eventually(t, "published", func() bool { return b.jobs.Publish(t.Context(), testJob(3)) == nil })
	publishJobs(t, b, 4, 9)
	if b.Losses() != 1 {
		t.Errorf("%d losses, want 1", b.Losses())
	}
	looked(t, b)
	if b.Losses() != 1 {
		t.Errorf("%d losses after a look, want 1", b.Losses())
	}
	for n, want := range map[int]jobs.RecoverOutcome{1: jobs.Published, 2: jobs.Published, 3: jobs.Queued} {
		if got, err := b.jobs.Recover(t.Context(), testJob(n)); err != nil || got != want {
			t.Errorf("job %d: %v, %v; want %v", n, got, err, want)
		}
	}
}

// mutation: losses.Sighting.Look that compares the number of messages, or takes any reconnect for a
// loss, makes this fail.
func TestWhatIsNoLossIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(t *testing.T, s *natstest.Server, b *broker){
		"a restart": func(_ *testing.T, s *natstest.Server, _ *broker) { s.Restart() },
		"a restart with empty queues": func(t *testing.T, s *natstest.Server, b *broker) {
			for range 3 {
				if err := bustest.Take(t, b.Conn, testJob(1).Topic).DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.Restart()
		},
		"a consumer that vanished": func(t *testing.T, _ *natstest.Server, b *broker) {
			name := fmt.Sprintf("syncopate-results-p%02d", protocol.Partition("run-2"))
			bustest.Eventually(t, "made, and deleted", func() bool {
				return b.JetStream.DeleteConsumer(t.Context(), b.Names.ResultsStream(), name) == nil
			})
		},
		"settings that are changed": func(t *testing.T, _ *natstest.Server, b *broker) {
			config := bustest.Info(t, b.Conn, b.Names.JobsStream()).Config
			config.MaxBytes = 1 << 30
			if _, err := b.JetStream.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
		},
		"another bus on the same streams": func(t *testing.T, s *natstest.Server, _ *broker) {
			publishJobs(t, newBroker(t, s), 200, 203)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			b := newBroker(t, s)
			publishJobs(t, b, 1, 3)
			got, _ := collect(t, b)
			bustest.Answer(t, b.Conn, bustest.JobID(1), bustest.Succeeded)
			settle(t, bustest.Receive(t, "the result", got, 1)[0], nil)
			happens(t, s, b)
			looked(t, b)
			bustest.Eventually(t, "published", func() bool {
				_, err := b.jobs.Recover(t.Context(), testJob(300))
				return err == nil
			})
			bustest.Answer(t, b.Conn, bustest.JobID(2), bustest.Succeeded)
			bustest.Receive(t, "the next result", got, 1)
			looked(t, b)
			if b.Losses() != 0 {
				t.Errorf("%v", b.Counted())
			}
		})
	}
}

// mutation: a reconnect handler without look makes this time out: a loss would be noticed
// ten seconds later.
func TestAReconnectAsksForALook(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBroker(t, s)
	s.Restart()
	bustest.Receive(t, "a look is asked for", b.Recheck(), 1)
}

// mutation: WatchStreams that waits for its ticker after a look that failed makes this time out.
func TestALookIsTriedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	fake := clocktesting.NewFakeClock(time.Now())
	b := newBroker(t, s, func(c *bus.Config) { c.Clock = fake })
	b.NATS.SetReconnectHandler(func(*nats.Conn) { b.NoteOpen() }) // no second look
	s.Shutdown()
	bustest.Eventually(t, "disconnected", func() bool { return !b.Connected() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.WatchStreams(ctx)
	}()
	b.Look()
	bustest.Eventually(t, "it looks", func() bool { return len(b.Recheck()) == 0 })
	begin := fake.Now()
	s.RestartEmpty()
	bustest.Eventually(t, "JetStream answers", func() bool { // so that no more pauses are needed than there are before the ticker
		_, err := b.JetStream.AccountInfo(t.Context())
		return err == nil
	})
	bustest.Eventually(t, "the losses are noticed", func() bool {
		if fake.Waiters() == 2 && fake.Since(begin) < bus.StreamCheck/2 { // its ticker, and the timer until it tries again
			fake.Step(2 * bus.RelookDelay)
		}
		return b.Losses() == 2
	})
	cancel()
	bustest.Eventually(t, "it ends", func() bool { return bustest.Closed(done) })
}

// mutation: WatchStreams that keeps trying without a bound on ctx makes this time out.
func TestTheWatchOfTheStreamsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBroker(t, s)
	s.Shutdown()
	ctx, cancel := context.WithCancel(t.Context())
	b.Look()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.WatchStreams(ctx)
	}()
	bustest.Eventually(t, "it looks", func() bool { return len(b.Recheck()) == 0 })
	cancel()
	bustest.Eventually(t, "it ends", func() bool { return bustest.Closed(done) })
}
