package bus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// losing is a bus without a server, for what it makes of what it is told.
func losing(t *testing.T) *losses {
	t.Helper()
	c, err := Config{Keys: Keyring{Current: testKey}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b := &Bus{config: c, names: c.Names, clock: c.Clock, log: c.Log, metrics: c.Metrics, pulse: newPulse()}
	b.topics = newTopics(b)
	return newLosses(b)
}

// Mutations that make this fail: each case of judge, acked and delivered left out; sighting.losses not looked at; a loss by acked or
// delivered that keeps created, or what came before it.
func TestWhatIsEvidenceOfALoss(t *testing.T) {
	const jobs, results = "SYNCOPATE_JOBS", "SYNCOPATE_RESULTS"
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	info := func(created int, last uint64) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{Created: at(created), State: jetstream.StreamState{LastSeq: last}}
	}
	for name, c := range map[string]struct {
		story func(l *losses)
		want  uint64
	}{
		"the first look": {func(l *losses) { l.judge(l.before(jobs), info(1, 5)) }, 0},
		"a stream that grows": {func(l *losses) {
			l.judge(l.before(jobs), info(1, 5))
			l.acked(l.before(jobs), 6)
			l.judge(l.before(jobs), info(1, 7))
		}, 0},
		"a stream made anew": {func(l *losses) {
			l.judge(l.before(jobs), info(1, 5))
			l.judge(l.before(jobs), info(2, 9))
			l.judge(l.before(jobs), info(2, 9))
		}, 1},
		"a stream made anew, and its other": {func(l *losses) {
			l.judge(l.before(jobs), info(1, 5))
			l.judge(l.before(results), info(1, 5))
			l.judge(l.before(jobs), info(2, 0))
			l.judge(l.before(results), info(2, 0))
		}, 2},
		"a stream that was longer when it was looked at": {func(l *losses) {
			l.judge(l.before(jobs), info(1, 5))
			l.judge(l.before(jobs), info(1, 4))
			l.judge(l.before(jobs), info(1, 4))
		}, 1},
		"a stream that was longer when it took a job": {func(l *losses) {
			l.acked(l.before(jobs), 5)
			l.judge(l.before(jobs), info(1, 4))
		}, 1},
		"a stream that was longer when a job was read": {func(l *losses) {
			l.present(l.before(jobs), 5)
			l.judge(l.before(jobs), info(1, 4))
		}, 1},
		"a stream that was longer when a result came": {func(l *losses) {
			l.delivered(results, 5, at(1))
			l.judge(l.before(results), info(1, 4))
		}, 1},
		"a job that was stored while the server answered": {func(l *losses) {
			asked := l.before(jobs)
			l.acked(l.before(jobs), 6)
			l.judge(asked, info(1, 5))
		}, 0},
		"jobs whose confirmations overtook each other": {func(l *losses) {
			one, two := l.before(jobs), l.before(jobs)
			l.acked(two, 6)
			l.acked(one, 5)
		}, 0},
		"a sequence that was given to a job before": {func(l *losses) {
			l.judge(l.before(jobs), info(1, 5))
			l.acked(l.before(jobs), 5)
			l.acked(l.before(jobs), 6)
			l.judge(l.before(jobs), info(2, 6))
		}, 1},
		"jobs on their way when it was noticed": {func(l *losses) {
			l.judge(l.before(jobs), info(1, 5))
			to, read := l.before(jobs), l.before(jobs)
			asked := l.before(jobs)
			l.judge(l.before(jobs), info(2, 0))
			l.acked(to, 1)
			l.acked(to, 6)
			l.present(read, 6)
			l.judge(asked, info(1, 5))
			l.judge(l.before(jobs), info(2, 1))
		}, 1},
		"results that come again": {func(l *losses) {
			l.delivered(results, 5, at(5))
			l.delivered(results, 3, at(3)) // to a consumer that was made anew, or of another one
			l.delivered(results, 3, at(3))
			l.delivered(results, 5, at(5))
		}, 0},
		"results in any order, and a clock that was set back": {func(l *losses) {
			l.delivered(results, 5, at(50))
			l.delivered(results, 6, at(20))
			l.delivered(results, 4, at(60))
			l.delivered(results, 6+rememberedArrivals, at(21))
			l.delivered(results, 6, at(20))
		}, 0},
		"a result with the sequence of one before": {func(l *losses) {
			l.delivered(results, 4, at(4))
			l.delivered(results, 5, at(5))
			l.delivered(results, 4, at(6))
			l.delivered(results, 4, at(6))
			l.delivered(results, 5, at(7))
			l.judge(l.before(results), info(1, 5))
		}, 1},
		"a result that was on its way when the stream was made anew": {func(l *losses) {
			l.judge(l.before(results), info(1, 5))
			l.judge(l.before(results), info(9, 0))
			l.delivered(results, 5, at(5))
			l.judge(l.before(results), info(9, 0))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := losing(t)
			c.story(l)
			if got := l.bus.losesWith(l); got != c.want {
				t.Errorf("%d losses, want %d", got, c.want)
			}
			if told := len(l.noticed) == 1; told != (c.want > 0) {
				t.Errorf("told: %t", told)
			}
		})
	}
}

func (b *Bus) losesWith(l *losses) uint64 {
	b.losses = l
	return b.Losses()
}

// counted are the losses that the metric has.
func counted(b *Bus) map[string]float64 {
	return map[string]float64{
		"jobs":    testutil.ToFloat64(b.metrics.dataLosses.WithLabelValues("jobs")),
		"results": testutil.ToFloat64(b.metrics.dataLosses.WithLabelValues("results")),
	}
}

func publishJobs(t *testing.T, b *Bus, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := b.Publish(t.Context(), testJob(n)); err != nil {
			t.Fatalf("publish job %d: %v", n, err)
		}
	}
}

// looked waits until the streams were looked at after all that happened before.
func looked(t *testing.T, b *Bus) {
	t.Helper()
	eventually(t, "the streams are looked at", func() bool { return b.checkStreams(t.Context()) == nil })
}

func recreate(t *testing.T, b *Bus, stream string) {
	t.Helper()
	config := streamInfo(t, b, stream).Config
	if err := b.js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// Mutations that make this fail: no watchStreams in Consume; judge that is not asked by ensureStream ("by a publish of our own").
func TestALossOfDataIsNoticedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(t *testing.T, s *natstest.Server, b *Bus)
		want map[string]float64
	}{
		"the server comes back empty": {
			lose: func(_ *testing.T, s *natstest.Server, _ *Bus) { s.RestartEmpty() },
			want: map[string]float64{"jobs": 1, "results": 1},
		},
		"the server comes back in an earlier state": {
			lose: func(t *testing.T, s *natstest.Server, b *Bus) {
				dir := s.CopyStore()
				eventually(t, "connected", b.connected)
				eventually(t, "published", func() bool { return b.Publish(t.Context(), testJob(100)) == nil })
				s.RestartOn(dir)
			},
			want: map[string]float64{"jobs": 1, "results": 0},
		},
		"somebody else makes the streams anew": {
			lose: func(t *testing.T, _ *natstest.Server, b *Bus) {
				recreate(t, b, b.names.JobsStream())
				recreate(t, b, b.names.ResultsStream())
				b.losses.look()
			},
			want: map[string]float64{"jobs": 1, "results": 1},
		},
		"the stream of jobs is made anew by a publish of our own": {
			lose: func(t *testing.T, _ *natstest.Server, b *Bus) {
				if err := b.js.DeleteStream(t.Context(), b.names.JobsStream()); err != nil {
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
			b := newBus(t, s)
			publishJobs(t, b, 1, 3)
			got, _ := collect(t, b)
			answer(t, b, jobID(1), succeeded)
			settle(t, receive(t, "the result", got, 1)[0], nil)
			c.lose(t, s, b)
			receive(t, "the loss is told", b.LossNoticed(), 1)
			eventually(t, "all of it is noticed", func() bool { return cmp.Equal(c.want, counted(b)) })
			looked(t, b)
			looked(t, b)
			if diff := cmp.Diff(c.want, counted(b)); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
			for n := 1; n <= 2; n++ { // the streams are in use again, with all that belongs to them
				eventually(t, "recovered", func() bool {
					_, err := b.Recover(t.Context(), testJob(n))
					return err == nil
				})
			}
			take(t, b, testJob(1).Topic)
			answer(t, b, jobID(2), succeeded)
			receive(t, "a result after the loss", got, 1)
		})
	}
}

// Nobody looks at the stream between the crash of the machine and the jobs that make it as long as it was.
//
// mutation: store without acked makes this fail.
func TestALostEndIsNoticedAlthoughTheStreamIsAsLongAsBefore(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	dir := s.CopyStore()
	eventually(t, "connected", b.connected)
	publishJobs(t, b, 1, 2)
	s.RestartOn(dir)
	eventually(t, "connected", b.connected)
	eventually(t, "published", func() bool { return b.Publish(t.Context(), testJob(3)) == nil })
	publishJobs(t, b, 4, 9)
	if b.Losses() != 1 {
		t.Errorf("%d losses, want 1", b.Losses())
	}
	looked(t, b)
	if b.Losses() != 1 {
		t.Errorf("%d losses after a look, want 1", b.Losses())
	}
	for n, want := range map[int]RecoverOutcome{1: Published, 2: Published, 3: Queued} {
		if got, err := b.Recover(t.Context(), testJob(n)); err != nil || got != want {
			t.Errorf("job %d: %v, %v; want %v", n, got, err, want)
		}
	}
}

// mutation: judge that compares the number of messages, or takes any reconnect for a loss, makes this fail.
func TestWhatIsNoLossIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(t *testing.T, s *natstest.Server, b *Bus){
		"a restart": func(_ *testing.T, s *natstest.Server, _ *Bus) { s.Restart() },
		"a restart with empty queues": func(t *testing.T, s *natstest.Server, b *Bus) {
			for range 3 {
				if err := take(t, b, testJob(1).Topic).DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.Restart()
		},
		"a consumer that vanished": func(t *testing.T, _ *natstest.Server, b *Bus) {
			name := b.resultConsumerConfig(protocol.Partition("run-2") / partitionsPerGroup).Durable
			eventually(t, "made, and deleted", func() bool {
				return b.js.DeleteConsumer(t.Context(), b.names.ResultsStream(), name) == nil
			})
		},
		"settings that are changed": func(t *testing.T, _ *natstest.Server, b *Bus) {
			config := streamInfo(t, b, b.names.JobsStream()).Config
			config.MaxBytes = 1 << 30
			if _, err := b.js.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
		},
		"another bus on the same streams": func(t *testing.T, s *natstest.Server, _ *Bus) {
			publishJobs(t, newBus(t, s), 200, 203)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			b := newBus(t, s)
			publishJobs(t, b, 1, 3)
			got, _ := collect(t, b)
			answer(t, b, jobID(1), succeeded)
			settle(t, receive(t, "the result", got, 1)[0], nil)
			happens(t, s, b)
			looked(t, b)
			eventually(t, "published", func() bool {
				_, err := b.Recover(t.Context(), testJob(300))
				return err == nil
			})
			answer(t, b, jobID(2), succeeded)
			receive(t, "the next result", got, 1)
			looked(t, b)
			if b.Losses() != 0 {
				t.Errorf("%v", counted(b))
			}
		})
	}
}

// The server takes an acknowledgement by its sequence alone, and the stream of now has another result there.
//
// mutation: a Delivery without guard makes this fail: the result of job 2 is gone.
func TestAResultOfTheStreamBeforeIsNotSettledInTheOneAfter(t *testing.T) {
	t.Parallel()
	for name, as := range map[string]error{"acknowledged": nil, "given back": errors.New("again"), "a dead letter": Permanent("Test", errors.New("bad"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			b := newBus(t, s)
			got, _ := collect(t, b)
			answer(t, b, jobID(1), succeeded)
			before := receive(t, "the first result", got, 1)[0]
			s.RestartEmpty()
			receive(t, "the loss is told", b.LossNoticed(), 1)
			eventually(t, "all of it is noticed", func() bool { return b.Losses() == 2 })
			again := before.ID
			again.Attempt = 2 // of the same run, so that the same consumer has it
			answer(t, b, again, succeeded)
			after := receive(t, "the result in its place", got, 1)[0]
			if before.key.sequence != after.key.sequence {
				t.Fatalf("sequences %d and %d", before.key.sequence, after.key.sequence)
			}
			if err := before.Settle(t.Context(), as); !errors.Is(err, errStreamLost) {
				t.Errorf("settle: %v", err)
			}
			if n := streamInfo(t, b, b.names.ResultsStream()).State.Msgs; n != 1 {
				t.Errorf("%d results in the stream, want 1", n)
			}
			settle(t, after, nil)
			eventually(t, "the result is settled", func() bool { return unsettled(t, b) == 0 })
		})
	}
}

// mutation: a reconnect handler without look makes this time out: a loss would be noticed ten seconds later.
func TestAReconnectAsksForALook(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	s.Restart()
	receive(t, "a look is asked for", b.losses.recheck, 1)
}

// mutation: watchStreams that waits for its ticker after a look that failed makes this time out.
func TestALookIsTriedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	fake := clocktesting.NewFakeClock(time.Now())
	b := newBus(t, s, func(c *Config) { c.Clock = fake })
	b.nc.SetReconnectHandler(func(*nats.Conn) {}) // no second look
	s.Shutdown()
	eventually(t, "disconnected", func() bool { return !b.connected() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.watchStreams(ctx)
	}()
	b.losses.look()
	eventually(t, "it looks", func() bool { return len(b.losses.recheck) == 0 })
	begin := fake.Now()
	s.RestartEmpty()
	eventually(t, "JetStream answers", func() bool { // so that no more pauses are needed than there are before the ticker
		_, err := b.js.AccountInfo(t.Context())
		return err == nil
	})
	eventually(t, "the losses are noticed", func() bool {
		if fake.Waiters() == 2 && fake.Since(begin) < streamCheck/2 { // its ticker, and the timer until it tries again
			fake.Step(2 * rebuildDelay)
		}
		return b.Losses() == 2
	})
	cancel()
	eventually(t, "it ends", func() bool { return isClosed(done) })
}

// mutation: watchStreams that keeps trying without a bound on ctx makes this time out.
func TestTheWatchOfTheStreamsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s)
	s.Shutdown()
	ctx, cancel := context.WithCancel(t.Context())
	b.losses.look()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.watchStreams(ctx)
	}()
	eventually(t, "it looks", func() bool { return len(b.losses.recheck) == 0 })
	cancel()
	eventually(t, "it ends", func() bool { return isClosed(done) })
}

// answered is what a server said of a stream.
type answered struct {
	jetstream.Stream
	info *jetstream.StreamInfo
}

func (a answered) CachedInfo() *jetstream.StreamInfo { return a.info }

// mutation: inspect that judges whatever it is told makes this fail.
func TestAClusterWithoutALeaderTellsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		cluster *jetstream.ClusterInfo
		want    uint64
	}{
		"a single server":          {nil, 1},
		"a cluster":                {&jetstream.ClusterInfo{Leader: "n1"}, 1},
		"a cluster without leader": {&jetstream.ClusterInfo{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := losing(t)
			b := l.bus
			b.losses = l
			l.acked(l.before(b.names.JobsStream()), 5)
			shorter := &jetstream.StreamInfo{Created: time.Unix(1, 0), State: jetstream.StreamState{LastSeq: 4}, Cluster: c.cluster}
			if _, err := b.inspect(b.names.JobsStream(), func() (jetstream.Stream, error) { return answered{info: shorter}, nil }); err != nil {
				t.Fatal(err)
			}
			if got := b.Losses(); got != c.want {
				t.Errorf("%d losses, want %d", got, c.want)
			}
		})
	}
}
