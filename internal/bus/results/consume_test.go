package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func ackWait(d time.Duration) func(*Config) { return func(c *Config) { c.ResultAckWait = d } }

func TestAResultArrivesDecoded(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	got, _ := collect(t, b)
	answer(t, b, jobID(1), `{"status":"Failed","error":{"code":"X","message":"no"},"final":true}`)
	d := receive(t, "result", got, 1)[0]
	want := protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: "X", Message: "no"}, Final: true}
	if diff := cmp.Diff(want, d.Result); diff != "" || d.ID != jobID(1) || d.Rejected != nil || d.Deliveries != 1 || d.PublishedAt.IsZero() {
		t.Errorf("delivery %+v (-want +got):\n%s", d, diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // mutation: without WithoutCancel in Settle the ack is not sent
	if err := d.Settle(ctx, nil); err != nil {
		t.Errorf("settle at a shutdown: %v", err)
	}
	settle(t, d, errors.New("a second Settle counts for nothing")) // mutation: no state check gives it back
	eventually(t, "the result is acknowledged", func() bool { return unsettled(t, b) == 0 })
}

func TestAnUnusableBodyWithAValidTokenReachesTheHandler(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	got, _ := collect(t, b)
	answer(t, b, jobID(1), `{"status":`)
	d := receive(t, "result", got, 1)[0]
	if !errors.Is(d.Rejected, protocol.ErrResult) || d.ID != jobID(1) || d.Result.Status != "" {
		t.Errorf("delivery %+v", d)
	}
	settle(t, d, nil)
}

// The contract over the wire: an error of another package, extraction, a real server, the measured gap.
// mutation: NakWithDelay(0) for every delay, or a plain Nak, makes this fail; so does a keeper that sends InProgress after a NAK.
func TestARedeliveryComesAfterTheDelayAskedFor(t *testing.T) {
	t.Parallel()
	metrics := NewMetrics(newRegistry())
	b := newBus(t, natstest.Start(t), ackWait(600*time.Millisecond), func(c *Config) { c.Metrics = metrics })
	delays := map[protocol.JobID]time.Duration{}
	for i, d := range []time.Duration{0, 350 * time.Millisecond, 500 * time.Millisecond, 650 * time.Millisecond, 2 * time.Second} {
		delays[jobID(i)] = d
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
		settle(t, d, fmt.Errorf("apply: %w", &otherError{delay: delays[d.ID], class: ClassLockBusy}))
	})
	for id := range delays {
		answer(t, b, id, succeeded)
	}
	for _, g := range receive(t, "redeliveries", gaps, len(delays)) {
		if want := delays[g.id]; g.gap < want || g.gap > want+3*time.Second {
			t.Errorf("asked for %s, came after %s", want, g.gap)
		}
	}
	if n := histogramCount(t, metrics.retryDelay, ClassLockBusy); n != 5 {
		t.Errorf("%d delays counted, want 5", n)
	}
	if n := histogramCount(t, metrics.redeliveryGap, ClassLockBusy); n != 5 {
		t.Errorf("%d gaps counted, want 5", n)
	}
	if n := histogramCount(t, metrics.redeliveryAsked, ClassLockBusy); n != 5 {
		t.Errorf("%d delays counted beside the gaps, want 5", n)
	}
}

// mutation: no keeper, or a keeper at AckWait*2, makes this fail.
func TestAHandlerSlowerThanAckWaitGetsNoSecondDelivery(t *testing.T) {
	t.Parallel()
	const wait = 2 * time.Second // a busy machine may be late by a second
	b := newBus(t, natstest.Start(t), ackWait(wait))
	got, _ := collect(t, b)
	other, err := b.js.CreateConsumer(t.Context(), b.names.ResultsStream(), b.resultConsumerConfig(groupOf(jobID(1))))
	if err != nil {
		t.Fatal(err)
	}
	answer(t, b, jobID(1), succeeded)
	d := receive(t, "result", got, 1)[0]
	nothing(t, "a second delivery here", got, 3*wait)
	info, err := other.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.NumRedelivered != 0 {
		t.Error("the server delivered a held result again")
	}
	settle(t, d, nil)
	eventually(t, "the result is acknowledged", func() bool { return unsettled(t, b) == 0 })
}

func groupOf(id protocol.JobID) int { return protocol.Partition(id.RunUID) / partitionsPerGroup }

// mutation: acknowledging, or not giving back, in drain makes this fail; AckWait is too long to help.
func TestTheDrainGivesBackWhatIsUnsettled(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a := newBus(t, s, ackWait(time.Minute))
	b := newBus(t, s, ackWait(time.Minute))
	const n = 50
	held, stop := collect(t, a)
	for i := range n {
		answer(t, a, jobID(i), succeeded)
	}
	deliveries := receive(t, "results at the first bus", held, n)
	stop()

	got, _ := collect(t, b)
	for _, d := range deliveries {
		if err := d.Settle(t.Context(), nil); !errors.Is(err, ErrDrained) {
			t.Fatalf("settle after the drain: %v, want ErrDrained", err)
		}
	}
	for _, d := range receive(t, "results at the second bus", got, n) {
		settle(t, d, nil)
	}
	eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
}

// mutation: no workers.Wait in run makes this fail.
func TestTheDrainWaitsForTheHandler(t *testing.T) {
	t.Parallel()
	b := newBus(t, natstest.Start(t))
	entered, leave, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(returned)
		_ = b.Consume(ctx, func(context.Context, *Delivery) {
			close(entered)
			<-leave
		})
	}()
	answer(t, b, jobID(1), succeeded)
	<-entered
	cancel()
	nothing(t, "Consume returned before its handler", returned, 300*time.Millisecond)
	close(leave)
	<-returned
}

// mutation: per-process consumers instead of shared durables make this fail.
func TestTwoBusesShareTheWork(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a, b := newBus(t, s), newBus(t, s)
	const n = 200
	got := make(chan protocol.JobID, 10*n)
	handle := func(ctx context.Context, d *Delivery) {
		settle(t, d, nil)
		got <- d.ID
	}
	consume(t, a, handle)
	consume(t, b, handle)
	for i := range n {
		answer(t, a, jobID(i), succeeded)
	}
	seen := map[protocol.JobID]int{}
	for _, id := range receive(t, "results", got, n) {
		seen[id]++
	}
	eventually(t, "all are acknowledged", func() bool { return unsettled(t, a) == 0 })
	if len(seen) != n || len(got) != 0 {
		t.Errorf("%d of %d results were handled, %d more came", len(seen), n, len(got))
	}
}

// mutation: no new pull after a reconnect (Consume once and for all over a connection that may not reconnect) makes this fail.
func TestARestartOfTheServerLosesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s, ackWait(time.Second))
	const n = 100
	got, _ := collect(t, b)
	for i := range n / 2 {
		answer(t, b, jobID(i), succeeded)
	}
	held := receive(t, "results before the restart", got, n/2)
	s.Restart()
	eventually(t, "the bus is ready again", func() bool { return b.Ready(t.Context()) == nil })
	for i := n / 2; i < n; i++ {
		answer(t, b, jobID(i), succeeded)
	}
	later := receive(t, "results after the restart", got, n/2)
	seen := map[protocol.JobID]bool{}
	for _, d := range append(held, later...) {
		seen[d.ID] = true
		settle(t, d, nil)
	}
	if len(seen) != n {
		t.Errorf("%d different results, want %d", len(seen), n)
	}
	eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
}

func TestAResultSettledWhileNATSIsAwayComesAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s, ackWait(time.Second))
	got, _ := collect(t, b)
	answer(t, b, jobID(1), succeeded)
	d := receive(t, "result", got, 1)[0]
	s.Shutdown()
	eventually(t, "the bus is not connected", func() bool { return !b.connected() })
	if err := d.Settle(t.Context(), nil); err == nil { // mutation: a reconnect buffer makes this fail
		t.Error("an ack that cannot be sent is no error")
	}
	s.Restart()
	settle(t, receive(t, "the result again", got, 1)[0], nil)
	eventually(t, "the result is acknowledged", func() bool { return unsettled(t, b) == 0 })
}

// mutation: no repairStreams in consumeOnce makes the case of the stream fail.
func TestAConsumerThatVanishedIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, destroy := range map[string]func(context.Context, *Bus) error{
		"the consumer": func(ctx context.Context, b *Bus) error {
			return b.js.DeleteConsumer(ctx, b.names.ResultsStream(), b.resultConsumerConfig(groupOf(jobID(1))).Durable)
		},
		"the stream": func(ctx context.Context, b *Bus) error { return b.js.DeleteStream(ctx, b.names.ResultsStream()) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t, natstest.Start(t))
			got, _ := collect(t, b)
			answer(t, b, jobID(1), succeeded)
			settle(t, receive(t, "result before", got, 1)[0], nil)
			if err := destroy(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the consumer is there again", func() bool { return unsettled(t, b) >= 0 })
			second := jobID(1)
			second.Attempt = 2
			answer(t, b, second, succeeded)
			eventually(t, "the new result comes", func() bool {
				d := receive(t, "result after", got, 1)[0] // an old one may come again: the acks went with the consumer
				settle(t, d, nil)
				return d.ID == second
			})
		})
	}
}

// The consumers vanish while nobody is connected, so no message tells of it.
// mutation: no check in onError makes this fail: only the watchdog would find out.
func TestConsumersThatVanishedInARestartAreMadeAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newBus(t, s, func(c *Config) { c.MemoryStorage = true })
	got, _ := collect(t, b)
	answer(t, b, jobID(1), succeeded)
	settle(t, receive(t, "result before", got, 1)[0], nil)
	s.Restart()
	start := time.Now()
	eventually(t, "streams and consumers are there again", func() bool { return b.connected() && unsettled(t, b) >= 0 })
	if took := time.Since(start); took > stallAfter {
		t.Errorf("took %s", took)
	}
	answer(t, b, jobID(2), succeeded)
	settle(t, receive(t, "result after", got, 1)[0], nil)
}

func TestConsumeStartsWithoutNATSAndStreams(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	url := s.URL()
	s.Shutdown()
	b, err := Connect(t.Context(), Config{URL: url, Keys: Keyring{Current: testKey}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(context.WithoutCancel(t.Context())) })
	got, _ := collect(t, b)
	s.Restart()
	eventually(t, "streams and consumers are there", func() bool { return b.connected() && unsettled(t, b) >= 0 })
	answer(t, b, jobID(1), succeeded)
	settle(t, receive(t, "result", got, 1)[0], nil)
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

// mutation: confirmed that returns now makes this fail: an idle group between two pulls would be built anew.
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

// mutation: UnixNano in touch makes this fail: a step of the wall clock would look like a stall, or hide one.
func TestTheLastMessageIsTimedByTheMonotonicClock(t *testing.T) {
	g := newGroup(&Bus{config: Config{ResultAckPending: groups}, clock: clock.RealClock{}}, 0, nil)
	g.touch()
	if at := g.lastAt.Load(); !strings.Contains(at.String(), "m=") {
		t.Errorf("%s has no monotonic reading", at)
	}
}

func TestResultConsumersCoverEveryPartitionOnce(t *testing.T) {
	c, err := Config{Keys: Keyring{Current: testKey}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b := &Bus{config: c, names: c.Names, pulse: newPulse()}
	seen := map[string]int{}
	for i := range groups {
		rc := b.resultConsumerConfig(i)
		if rc.MaxDeliver != -1 || len(rc.BackOff) != 0 || rc.AckPolicy != jetstream.AckExplicitPolicy || rc.AckWait != 10*time.Second ||
			rc.MaxAckPending != 1_000_000 || rc.Durable != fmt.Sprintf("syncopate-results-%d", i) {
			t.Errorf("consumer %d: %+v", i, rc)
		}
		for _, f := range rc.FilterSubjects {
			seen[f]++
		}
	}
	for p := range protocol.Partitions {
		if n := seen[b.names.PartitionResults(p)]; n != 1 {
			t.Errorf("partition %d is consumed %d times", p, n)
		}
	}
}
