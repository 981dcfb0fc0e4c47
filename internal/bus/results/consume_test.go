// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func ackWait(d time.Duration) func(*config) { return func(c *config) { c.AckWait = d } }

func TestAResultArrivesDecoded(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), `{"status":"Failed","error":{"code":"X","message":"no"},"final":true}`)
	d := bustest.Receive(t, "result", got, 1)[0]
	want := protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: "X", Message: "no"}, Final: true}
	if diff := cmp.Diff(want, d.Result); diff != "" || d.ID != bustest.JobID(1) || d.Rejected != nil || d.Deliveries != 1 || d.PublishedAt.IsZero() {
		t.Errorf("delivery %+v (-want +got):\n%s", d, diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // mutation: without WithoutCancel in Settle the ack is not sent
	if err := d.Settle(ctx, nil); err != nil {
		t.Errorf("settle at a shutdown: %v", err)
	}
	settle(t, d, errors.New("a second Settle counts for nothing")) // mutation: no state check gives it back
	bustest.Eventually(t, "the result is acknowledged", func() bool { return unsettled(t, b) == 0 })
}

func TestAnUnusableBodyWithAValidTokenReachesTheHandler(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), `{"status":`)
	d := bustest.Receive(t, "result", got, 1)[0]
	if !errors.Is(d.Rejected, protocol.ErrResult) || d.ID != bustest.JobID(1) || d.Result.Status != "" {
		t.Errorf("delivery %+v", d)
	}
	settle(t, d, nil)
}

// The contract over the wire: an error of another package, extraction, a real server,
// the measured gap.
// mutation: NakWithDelay(0) for every delay, or a plain Nak, makes this fail; so does a keeper that
// sends InProgress after a NAK.
func TestARedeliveryComesAfterTheDelayAskedFor(t *testing.T) {
	t.Parallel()
	metrics := NewMetrics(newRegistry())
	b := newTestConsumer(t, natstest.Start(t), ackWait(3*time.Second), func(c *config) { c.Options.Metrics = metrics })
	delays := map[protocol.JobID]time.Duration{}
	for i, d := range []time.Duration{0, 350 * time.Millisecond, 500 * time.Millisecond, 650 * time.Millisecond, 2 * time.Second} {
		delays[bustest.JobID(i)] = d
	}
	type gapOf struct {
		id  protocol.JobID
		gap time.Duration
	}
	gaps := make(chan gapOf, len(delays))
	var mu sync.Mutex
	asked := map[protocol.JobID]time.Time{}
	consume(t, b, func(ctx context.Context, d *Delivery) {
		mu.Lock()
		defer mu.Unlock()
		if at, again := asked[d.ID]; again {
			gaps <- gapOf{d.ID, time.Since(at)}
			settle(t, d, nil)
			return
		}
		asked[d.ID] = time.Now()
		settle(t, d, fmt.Errorf("apply: %w", &otherError{delay: delays[d.ID], class: bus.ClassLockBusy}))
	})
	followed(t, b)
	for id := range delays {
		bustest.Answer(t, b.conn, id, bustest.Succeeded)
	}
	for _, g := range bustest.Receive(t, "redeliveries", gaps, len(delays)) {
		if want := delays[g.id]; g.gap < want || g.gap > want+3*time.Second {
			t.Errorf("asked for %s, came after %s", want, g.gap)
		}
	}
	if n := histogramCount(t, metrics.retryDelay, bus.ClassLockBusy); n != 5 {
		t.Errorf("%d delays counted, want 5", n)
	}
	if n := histogramCount(t, metrics.redeliveryGap, bus.ClassLockBusy); n != 5 {
		t.Errorf("%d gaps counted, want 5", n)
	}
	if n := histogramCount(t, metrics.redeliveryAsked, bus.ClassLockBusy); n != 5 {
		t.Errorf("%d delays counted beside the gaps, want 5", n)
	}
}

// mutation: no keeper, or a keeper at AckWait*2, makes this fail.
func TestAHandlerSlowerThanAckWaitGetsNoSecondDelivery(t *testing.T) {
	t.Parallel()
	const wait = 3 * time.Second // a busy machine may be late by two
	b := newTestConsumer(t, natstest.Start(t), ackWait(wait))
	got, _ := collect(t, b)
	other, err := b.conn.JetStream.CreateConsumer(t.Context(), b.conn.Names.ResultsStream(), b.config(partitionOf(bustest.JobID(1))))
	if err != nil {
		t.Fatal(err)
	}
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	d := bustest.Receive(t, "result", got, 1)[0]
	bustest.Nothing(t, "a second delivery here", got, 2*wait)
	info, err := other.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.NumRedelivered != 0 {
		t.Error("the server delivered a held result again")
	}
	settle(t, d, nil)
	bustest.Eventually(t, "the result is acknowledged", func() bool { return unsettled(t, b) == 0 })
}

func partitionOf(id protocol.JobID) int { return protocol.Partition(id.RunUID) }

// mutation: acknowledging, or not giving back, in drain makes this fail; AckWait is too
// long to help.
func TestTheDrainGivesBackWhatIsUnsettled(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a := newTestConsumer(t, s, ackWait(time.Minute))
	b := newTestConsumer(t, s, ackWait(time.Minute))
	const n = 50
	held, stop := collect(t, a)
	for i := range n {
		bustest.Answer(t, a.conn, bustest.JobID(i), bustest.Succeeded)
	}
	deliveries := bustest.Receive(t, "results at the first bus", held, n)
	stop()

	got, _ := collect(t, b)
	for _, d := range deliveries {
		if err := d.Settle(t.Context(), nil); !errors.Is(err, ErrDrained) {
			t.Fatalf("settle after the drain: %v, want ErrDrained", err)
		}
	}
	for _, d := range bustest.Receive(t, "results at the second bus", got, n) {
		settle(t, d, nil)
	}
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
}

// mutation: no workers.Wait in run makes this fail.
func TestTheDrainWaitsForTheHandler(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	entered, leave, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(returned)
		_ = b.Consume(ctx, func(context.Context, *Delivery) {
			close(entered)
			<-leave
		})
	}()
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	<-entered
	cancel()
	bustest.Nothing(t, "Consume returned before its handler", returned, 300*time.Millisecond)
	close(leave)
	<-returned
}

// mutation: per-process consumers instead of shared durables make this fail.
func TestTwoBusesShareTheWork(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a, b := newTestConsumer(t, s), newTestConsumer(t, s)
	const n = 200
	got := make(chan protocol.JobID, 10*n)
	handle := func(ctx context.Context, d *Delivery) {
		settle(t, d, nil)
		got <- d.ID
	}
	consume(t, a, handle)
	consume(t, b, handle)
	for i := range n {
		bustest.Answer(t, a.conn, bustest.JobID(i), bustest.Succeeded)
	}
	seen := map[protocol.JobID]int{}
	for _, id := range bustest.Receive(t, "results", got, n) {
		seen[id]++
	}
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, a) == 0 })
	if len(seen) != n || len(got) != 0 {
		t.Errorf("%d of %d results were handled, %d more came", len(seen), n, len(got))
	}
}

// mutation: no new pull after a reconnect (Consume once and for all over a connection that may not
// reconnect) makes this fail.
func TestARestartOfTheServerLosesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newTestConsumer(t, s, ackWait(time.Second))
	const n = 100
	got, _ := collect(t, b)
	for i := range n / 2 {
		bustest.Answer(t, b.conn, bustest.JobID(i), bustest.Succeeded)
	}
	held := bustest.Receive(t, "results before the restart", got, n/2)
	s.Restart()
	bustest.Eventually(t, "the bus is ready again", func() bool { return b.conn.Ready(t.Context()) == nil })
	for i := n / 2; i < n; i++ {
		bustest.Answer(t, b.conn, bustest.JobID(i), bustest.Succeeded)
	}
	later := bustest.Receive(t, "results after the restart", got, n/2)
	seen := map[protocol.JobID]bool{}
	for _, d := range append(held, later...) {
		seen[d.ID] = true
		settle(t, d, nil)
	}
	if len(seen) != n {
		t.Errorf("%d different results, want %d", len(seen), n)
	}
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
}

func TestAResultSettledWhileNATSIsAwayComesAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newTestConsumer(t, s, ackWait(time.Second))
	got, _ := collect(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	d := bustest.Receive(t, "result", got, 1)[0]
	s.Shutdown()
	bustest.Eventually(t, "the bus is not connected", func() bool { return !b.conn.Connected() })
	if err := d.Settle(t.Context(), nil); err == nil { // mutation: a reconnect buffer makes this fail
		t.Error("an ack that cannot be sent is no error")
	}
	s.Restart()
	settle(t, bustest.Receive(t, "the result again", got, 1)[0], nil)
	bustest.Eventually(t, "the result is acknowledged", func() bool { return unsettled(t, b) == 0 })
}

// A feed makes the stream anew at once. Without that the watch of the streams does, some ten
// seconds later: the test does not tell these apart.
func TestAConsumerThatVanishedIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, destroy := range map[string]func(context.Context, *Consumer) error{
		"the consumer": func(ctx context.Context, b *Consumer) error {
			return b.conn.JetStream.DeleteConsumer(ctx, b.conn.Names.ResultsStream(), b.config(partitionOf(bustest.JobID(1))).Durable)
		},
		"the stream": func(ctx context.Context, b *Consumer) error {
			return b.conn.JetStream.DeleteStream(ctx, b.conn.Names.ResultsStream())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestConsumer(t, natstest.Start(t))
			got, _ := collect(t, b)
			bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
			settle(t, bustest.Receive(t, "result before", got, 1)[0], nil)
			if err := destroy(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			bustest.Eventually(t, "the consumer is there again", func() bool { return unsettled(t, b) >= 0 })
			second := bustest.JobID(1)
			second.Attempt = 2
			bustest.Answer(t, b.conn, second, bustest.Succeeded)
			bustest.Eventually(t, "the new result comes", func() bool {
				d := bustest.Receive(t, "result after", got, 1)[0] // an old one may come again: the acks went with the consumer
				settle(t, d, nil)
				return d.ID == second
			})
		})
	}
}

// The consumers vanish while nobody is connected, so no message tells of it.
// mutation: no ask in word makes this fail: only the watchdog would find out.
func TestConsumersThatVanishedInARestartAreMadeAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newTestConsumer(t, s, func(c *config) { c.MemoryStorage = true })
	got, _ := collect(t, b)
	followed(t, b)
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	settle(t, bustest.Receive(t, "result before", got, 1)[0], nil)
	s.Restart()
	start := time.Now()
	bustest.Eventually(t, "the first consumer is there again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // what is asked before JetStream is there has no answer
		defer cancel()
		s, err := b.conn.JetStream.Stream(ctx, b.conn.Names.ResultsStream())
		return err == nil && s.CachedInfo().State.Consumers > 0
	})
	if took := time.Since(start); took > stallAfter {
		t.Errorf("took %s", took)
	}
	bustest.Eventually(t, "all are", func() bool { return unsettled(t, b) >= 0 })
	bustest.Answer(t, b.conn, bustest.JobID(2), bustest.Succeeded)
	settle(t, bustest.Receive(t, "result after", got, 1)[0], nil)
}

func TestConsumeStartsWithoutNATSAndStreams(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	url := s.URL()
	s.Shutdown()
	conn, err := bus.Connect(t.Context(), bus.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	b := followAll(NewConsumer(conn, bustest.Keys(t), deadletters.NewWriter(conn), Options{}))
	got, _ := collect(t, b)
	s.Restart()
	bustest.Eventually(t, "streams and consumers are there", func() bool { return b.conn.Connected() && unsettled(t, b) >= 0 })
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	settle(t, bustest.Receive(t, "result", got, 1)[0], nil)
}

func TestAStalledSubscriptionIsRecognised(t *testing.T) {
	info := func(pending uint64, ackPending, waiting int) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{
			NumPending: pending, NumAckPending: ackPending, NumWaiting: waiting,
			Config: jetstream.ConsumerConfig{MaxAckPending: 10},
		}
	}
	for name, c := range map[string]struct {
		info *jetstream.ConsumerInfo
		want bool
	}{
		"nothing to do":                              {info(0, 0, 1), false},
		"messages wait although there is room":       {info(5, 3, 1), true},
		"messages wait because the group is full":    {info(5, 10, 1), false},
		"nobody pulls":                               {info(0, 0, 0), true},
		"nobody pulls what is to be delivered again": {info(0, 4, 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isStalled(c.info); got != c.want {
				t.Errorf("isStalled = %t", got)
			}
		})
	}
}

// mutation: confirmed that returns now makes this fail: an idle group between two pulls would
// be built anew.
func TestOnlyTwoFindingsInARowAreAStall(t *testing.T) {
	var s suspicion
	for i, c := range []struct{ found, want bool }{
		{true, false},
		{false, false}, // mutation: confirmed that never forgets makes the next line fail
		{true, false},
		{true, true},
	} {
		if got := s.confirmed(c.found); got != c.want {
			t.Errorf("check %d: confirmed = %t", i, got)
		}
	}
}

// mutation: UnixNano in touch makes this fail: a step of the wall clock would look like a stall,
// or hide one.
func TestTheLastMessageIsTimedByTheMonotonicClock(t *testing.T) {
	g := newFeed(offline(t, bus.Config{}, Options{}), 0, nil)
	g.touch()
	if at := g.lastAt.Load(); !strings.Contains(at.String(), "m=") {
		t.Errorf("%s has no monotonic reading", at)
	}
}

// hurried is a clock on which the waits before a subscription is built anew are short.
// It counts them.
type hurried struct {
	clock.RealClock
	waits atomic.Int64
}

func (c *hurried) NewTimer(d time.Duration) clock.Timer {
	if d > 2*rebuildDelay {
		return c.RealClock.NewTimer(d)
	}
	c.waits.Add(1)
	return c.RealClock.NewTimer(time.Millisecond)
}

// An outage of NATS must not fill the log. mutation: a line for each try, or none but the first,
// makes this fail.
func TestASubscriptionThatCannotBeBuiltIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	fast := &hurried{}
	var lines atomic.Int64
	b := offline(t, bus.Config{Clock: fast, Log: funcr.New(func(_, args string) {
		if strings.Contains(args, "built anew") {
			lines.Add(1)
		}
	}, funcr.Options{})}, Options{})
	b.Follow(0)
	stop := consume(t, b, func(context.Context, *Delivery) {})
	bustest.Eventually(t, "it is tried often", func() bool { return fast.waits.Load() > 2*rebuildsPerLine })
	stop()
	if tries := fast.waits.Load(); lines.Load() != (tries+rebuildsPerLine-1)/rebuildsPerLine {
		t.Errorf("%d lines of %d tries", lines.Load(), tries)
	}
}

// mutation: a feed that goes on counting once it has subscribed makes this fail.
func TestEachEndOfASubscriptionThatWorkedIsTold(t *testing.T) {
	t.Parallel()
	id := bustest.JobID(1)
	var lines atomic.Int64
	b := newTestConsumer(t, natstest.Start(t), func(c *config) {
		c.Log = funcr.New(func(_, args string) {
			if strings.Contains(args, "built anew") && strings.Contains(args, fmt.Sprintf("-p%02d", partitionOf(id))) {
				lines.Add(1)
			}
		}, funcr.Options{})
	})
	got, _ := collect(t, b)
	for n := range 2 {
		id.Attempt = int32(n + 1)
		bustest.Answer(t, b.conn, id, bustest.Succeeded)
		bustest.Eventually(t, "the result comes", func() bool {
			d := bustest.Receive(t, "result", got, 1)[0] // an old one may come again: the acks went with the consumer
			settle(t, d, nil)
			return d.ID == id
		})
		if err := b.conn.JetStream.DeleteConsumer(t.Context(), b.conn.Names.ResultsStream(), b.config(partitionOf(id)).Durable); err != nil {
			t.Fatal(err)
		}
		bustest.Eventually(t, "its end is told", func() bool { return lines.Load() > int64(n) })
	}
}

func TestResultConsumersCoverEveryPartitionOnce(t *testing.T) {
	b := offline(t, bus.Config{}, Options{})
	seen := map[string]int{}
	for i := range protocol.Partitions {
		rc := b.config(i)
		if rc.MaxDeliver != -1 || len(rc.BackOff) != 0 || rc.AckPolicy != jetstream.AckExplicitPolicy || rc.AckWait != 10*time.Second ||
			rc.MaxAckPending != 125_000 || rc.Durable != fmt.Sprintf("syncopate-results-p%02d", i) {
			t.Errorf("consumer %d: %+v", i, rc)
		}
		seen[rc.FilterSubject]++
	}
	for p := range protocol.Partitions {
		if n := seen[b.conn.Names.PartitionResults(p)]; n != 1 {
			t.Errorf("partition %d is consumed %d times", p, n)
		}
	}
}
