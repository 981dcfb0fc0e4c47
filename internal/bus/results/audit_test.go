// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// The contract names the settings; this is what goes over the wire.
// mutation: a pull without one of them makes this fail.
func TestPullsAreShortAndHaveAHeartbeat(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	nc, err := nats.Connect(s.URL(), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	pulls := make(chan *nats.Msg, 1000)
	b := newTestConsumer(t, s)
	if _, err := nc.ChanSubscribe("$JS.API.CONSUMER.MSG.NEXT."+b.conn.Names.ResultsStream()+".>", pulls); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	collect(t, b)
	seen := map[string]bool{}
	for len(seen) < protocol.Partitions {
		m := bustest.Receive(t, "a pull of each partition", pulls, 1)[0]
		var pull struct {
			Batch     int           `json:"batch"`
			Expires   time.Duration `json:"expires"`
			Heartbeat time.Duration `json:"idle_heartbeat"`
		}
		if err := json.Unmarshal(m.Data, &pull); err != nil {
			t.Fatal(err)
		}
		if pull.Expires != pullExpiry || pull.Heartbeat != pullHeartbeat || pull.Batch != min(pullBatch, b.options.partitionShare()) {
			t.Fatalf("pull %+v", pull)
		}
		seen[m.Subject[strings.LastIndex(m.Subject, ".")+1:]] = true
	}
}

// mutation: MaxAckPending that is not the partition's share makes the first part fail, one consumer
// for all partitions the second.
func TestAPartitionThatIsFullHoldsNoMoreAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	const share, n = 4, 100
	b := newTestConsumer(t, natstest.Start(t), func(c *config) { c.AckPending = share * protocol.Partitions })
	got, _ := collect(t, b)
	hot := inPartition(n)
	for _, id := range hot {
		bustest.Answer(t, b.conn, id, bustest.Succeeded)
	}
	held := bustest.Receive(t, "what a partition may have", got, share)
	var cold []protocol.JobID
	for i := 0; len(cold) < n; i++ {
		if id := bustest.JobID(i); partitionOf(id) != partitionOf(hot[0]) {
			cold = append(cold, id)
			bustest.Answer(t, b.conn, id, bustest.Succeeded)
		}
	}
	for range n {
		d := bustest.Receive(t, "results of other partitions", got, 1)[0]
		if partitionOf(d.ID) == partitionOf(hot[0]) {
			t.Fatal("the full partition got one more")
		}
		settle(t, d, nil)
	}
	for _, d := range held {
		settle(t, d, nil)
	}
	for range n - share {
		settle(t, bustest.Receive(t, "the rest of the partition", got, 1)[0], nil)
	}
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
}

// mutation: an ack for what finds no room, or a wait that does not grow, makes this fail.
func TestPoisonThatFindsNoRoomGoesBackAtAPace(t *testing.T) {
	b := offline(t, bus.Config{Rand: func() float64 { return 0.5 }, Clock: clocktesting.NewFakeClock(time.Now())}, Options{})
	f := newFeed(b, 0, nil)
	var sent []string
	arrive := func(name string) {
		d := &Delivery{consumer: b, ledger: f.ledger, key: messageKey{sequence: uint64(len(name))}, receipt: wire{name: name, sent: &sent}}
		_ = f.ledger.admit(d, b.conn.Clock.Now(), f.measured)
		f.setAside(t.Context(), poisoned{delivery: d, cause: ErrBadToken, at: b.conn.Clock.Now()})
	}
	for i := range poisonQueue {
		arrive(strings.Repeat("x", 100+i))
	}
	arrive("another")
	arrive("and one more")
	<-f.burial.queue
	arrive("after it")
	if diff := cmp.Diff([]string{"another nak 2.002s", "and one more nak 2.004s"}, sent); diff != "" || len(f.burial.queue) != poisonQueue {
		t.Errorf("%d wait, on the wire (-want +got):\n%s", len(f.burial.queue), diff)
	}
}

// mutation: a receive that does not wait, or waits beyond the end, makes this fail.
func TestNothingMoreIsReceivedWhileTheHandlerHasNoPlace(t *testing.T) {
	f := newFeed(offline(t, bus.Config{}, Options{}), 0, nil)
	for range workQueue {
		f.accept(t.Context(), &Delivery{})
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.accept(ctx, &Delivery{}) }()
	bustest.Nothing(t, "accepted without a place", done, 50*time.Millisecond)
	end()
	bustest.Receive(t, "accept returns at the end", done, 1)
}

// stuck is a consumer of which the server says always the same.
type stuck struct {
	jetstream.Consumer
	info jetstream.ConsumerInfo
	asks chan struct{}
}

func (s *stuck) Info(context.Context) (*jetstream.ConsumerInfo, error) {
	s.asks <- struct{}{}
	return &s.info, nil
}

// noted is a clock that counts who has asked how long ago something was.
type noted struct {
	*clocktesting.FakeClock
	looks atomic.Int32
}

func (n *noted) Since(t time.Time) time.Duration {
	d := n.FakeClock.Since(t)
	n.looks.Add(1)
	return d
}

// mutation: watch without its ticker, or stalled that finds nothing, makes the first line fail; one
// that does not wait for stallAfter the others.
func TestTheWatchdogEndsASubscriptionThatGetsNothingThoughMessagesWait(t *testing.T) {
	for name, c := range map[string]struct {
		info    jetstream.ConsumerInfo
		touched bool // a message came shortly before each check
		ends    bool
	}{
		"messages wait": {jetstream.ConsumerInfo{NumPending: 1, NumWaiting: 1, Config: jetstream.ConsumerConfig{MaxAckPending: 10}}, false, true},
		"none waits":    {jetstream.ConsumerInfo{NumWaiting: 1, Config: jetstream.ConsumerConfig{MaxAckPending: 10}}, false, false},
		"they come":     {jetstream.ConsumerInfo{NumPending: 1, NumWaiting: 1, Config: jetstream.ConsumerConfig{MaxAckPending: 10}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &noted{FakeClock: clocktesting.NewFakeClock(time.Now())}
			f := newFeed(offline(t, bus.Config{Clock: fake}, Options{}), 0, nil)
			f.touch()
			consumer := &stuck{info: c.info, asks: make(chan struct{}, 100)}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- f.watch(ctx, consumer, &pulls{feed: f}) }()
			bustest.Eventually(t, "it watches", fake.HasWaiters)
			checks := int(2*stallAfter/stallCheck) + 1
			for range checks {
				if c.touched {
					f.touch()
				}
				before, looks := len(consumer.asks), fake.looks.Load()
				fake.Step(stallCheck)
				bustest.Eventually(t, "it looks at the time", func() bool { return fake.looks.Load() > looks || len(done) > 0 })
				if fake.FakeClock.Since(*f.lastAt.Load()) >= stallAfter {
					bustest.Eventually(t, "it looks", func() bool { return len(consumer.asks) > before || len(done) > 0 })
				}
			}
			if !c.ends {
				stop()
			}
			if err := bustest.Receive(t, "it ends", done, 1)[0]; (err != nil) != c.ends {
				t.Errorf("ends with %v", err)
			}
			if c.touched && len(consumer.asks) != 0 {
				t.Error("the server was asked although messages come")
			}
		})
	}
}

// What a forger can know is the job's id, not its token, so he cannot take the Msg-Id of the good
// result; what he sends is no duplicate of it either. mutation: a result's Msg-Id without the token
// (protocol.ResultMsgID) makes this fail.
func TestAForgedResultCannotMakeTheGoodOneADuplicate(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	id, other := bustest.JobID(1), bustest.JobID(1)
	other.Attempt = 2
	forged := []string{
		id.String(), protocol.ResultMsgID(id, ""), protocol.ResultMsgID(id, b.keys.Sign(other)),
		protocol.StartedMsgID(id, ""), protocol.ResultMsgID(other, b.keys.Sign(other)),
	}
	for i, msgID := range forged {
		bustest.PublishRaw(t, b.conn, b.conn.Names.Result(id), `{"status":"Failed","final":true,"error":{"code":"F"}}`,
			protocol.HeaderToken, b.keys.Sign(other), protocol.HeaderMsgID, msgID, "X-Try", fmt.Sprint(i))
	}
	bustest.Answer(t, b.conn, id, bustest.Succeeded) // the worker's own
	got, _ := collect(t, b)
	d := bustest.Receive(t, "the good result", got, 1)[0]
	if d.ID != id || d.Result.Status != protocol.StatusSucceeded {
		t.Errorf("delivery %+v", d)
	}
	settle(t, d, nil)
	bustest.Eventually(t, "the others are put aside", func() bool { return unsettled(t, b) == 0 })
	if n := len(bustest.DeadLetters(t, b.conn)); n != len(forged) || len(got) != 0 {
		t.Errorf("%d dead letters, %d more deliveries", n, len(got))
	}
}

// A handler that never settles, in the middle of a SIGTERM: whatever was handed out goes back
// without an ack, also what is still in the bus's own queue. mutation: dispatch that goes on after
// ctx has ended, or a drain of what was handed out only, makes this fail.
func TestTheEndGivesBackAlsoWhatWaitsInTheBus(t *testing.T) {
	t.Parallel()
	const n = 20
	s := natstest.Start(t)
	a := newTestConsumer(t, s, ackWait(time.Minute))
	entered, leave := make(chan struct{}, n), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- a.Consume(ctx, func(context.Context, *Delivery) {
			entered <- struct{}{}
			<-leave
		})
	}()
	for _, id := range inPartition(n) {
		bustest.Answer(t, a.conn, id, bustest.Succeeded)
	}
	bustest.Receive(t, "the first is being handled", entered, 1)
	bustest.Eventually(t, "all are with the first bus", func() bool {
		c, err := a.conn.JetStream.Consumer(t.Context(), a.conn.Names.ResultsStream(), a.config(partitionOf(bustest.JobID(0))).Durable)
		return err == nil && c.CachedInfo().NumAckPending == n
	})
	cancel()
	close(leave)
	if err := bustest.Receive(t, "Consume returns", done, 1)[0]; err != nil {
		t.Error(err)
	}
	if len(entered) != 0 {
		t.Errorf("%d more were handed out after the end", len(entered))
	}
	b := newTestConsumer(t, s, ackWait(time.Minute))
	got, _ := collect(t, b)
	seen := map[protocol.JobID]bool{}
	for _, d := range bustest.Receive(t, "all of them again", got, n) {
		seen[d.ID] = true
		settle(t, d, nil)
	}
	if len(seen) != n {
		t.Errorf("%d of %d came again", len(seen), n)
	}
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
}
