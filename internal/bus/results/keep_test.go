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

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/testenv/door"
)

// keeping is a receipt that counts how often its message was kept.
type keeping struct {
	receipt
	away *atomic.Bool
	kept *atomic.Int32
}

func (k keeping) InProgress() error {
	if k.away.Load() {
		return bus.ErrUnreachable
	}
	k.kept.Add(1)
	return nil
}

// An outage over two rounds that is taken for one, or is short, must not bring all that is held
// again.
//
// mutation: keepAlive that waits for the next round after one that failed.
func TestWhatIsHeldIsKeptAsSoonAsAnOutageEnds(t *testing.T) {
	t.Parallel()
	const wait = 30 * time.Second
	clk := clocktesting.NewFakeClock(time.Now())
	c := offline(t, bus.Config{Clock: clk}, Options{AckWait: wait})
	var away atomic.Bool
	var kept atomic.Int32
	l := newLedger(c.returns)
	d := &Delivery{ledger: l, receipt: keeping{away: &away, kept: &kept}}
	l.admit(d, clk.Now(), func(string, time.Duration, time.Duration) {})
	c.following.feeds[1] = &running{feed: &feed{partition: 1, ledger: l}, stop: func() {}}
	ctx, stop := context.WithCancel(t.Context())
	var keeper sync.WaitGroup
	keeper.Go(func() { c.keepAlive(ctx) })
	defer keeper.Wait()
	defer stop()
	step := func(seconds int) {
		for range seconds {
			bustest.Eventually(t, "the keeper waits", clk.HasWaiters)
			clk.Step(time.Second)
		}
	}
	away.Store(true)
	step(21) // two rounds
	away.Store(false)
	step(7)
	if bustest.Eventually(t, "the keeper waits", clk.HasWaiters); kept.Load() != 1 {
		t.Fatalf("kept %d times before AckWait is over, want once", kept.Load())
	}
	step(4)
	if bustest.Eventually(t, "the keeper waits", clk.HasWaiters); kept.Load() != 2 {
		t.Errorf("kept %d times, want once more in the next round", kept.Load())
	}
}

// The connection is lost when all that is held was given back, and a settlement is under way.
//
// mutations: a Flush that has nothing to say without a connection, or of the one before; an end
// that looks only at feeds which still run.
func TestConsumer_AnEndSaysThatNobodyKnowsWhetherResultsWereGivenBack(t *testing.T) {
	t.Parallel()
	leave := func(c *Consumer, partition int, _ func() error) error { return c.Leave(t.Context(), partition) }
	stop := func(_ *Consumer, _ int, stop func() error) error { return stop() }
	for name, c := range map[string]struct {
		end   func(c *Consumer, partition int, stop func() error) error
		again bool
	}{
		"Leave, and NATS stays away":    {leave, false},
		"Leave, and NATS comes back":    {leave, true},
		"the stop, and NATS stays away": {stop, false},
		"the stop, and NATS comes back": {stop, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := endsBesideALoss(t, c.end, c.again); !errors.Is(err, bus.ErrUnreachable) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// endsBesideALoss is what is said by an end, beside which the connection is lost, and may come
// back.
func endsBesideALoss(t *testing.T, end func(c *Consumer, partition int, stop func() error) error, again bool) error {
	t.Helper()
	s := natstest.Start(t)
	way := door.New(t, strings.TrimPrefix(s.URL(), "nats://"))
	c := newTestConsumer(t, s, ackWait(time.Minute), func(c *config) { c.URL = "nats://" + way.Addr() })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	got, consumed := make(chan *Delivery, 10), make(chan error, 1)
	go func() { consumed <- c.Consume(ctx, func(_ context.Context, d *Delivery) { got <- d }) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return bustest.Receive(t, "Consume returns", consumed, 1)[0]
	})
	t.Cleanup(func() { _ = stop() })
	ids := inPartition(3)
	for _, id := range ids {
		bustest.Answer(t, c.conn, id, bustest.Succeeded)
	}
	held := bustest.Receive(t, "results", got, len(ids))
	l := held[0].ledger
	if ok, err := l.claim(held[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	way.Poison(door.Up, door.Fault{Unread: true})
	said := make(chan error, 1)
	go func() { said <- end(c, partitionOf(ids[0]), stop) }()
	bustest.Eventually(t, "the others are given back", func() bool { return !l.isOpen(held[1]) && !l.isOpen(held[2]) })
	way.Shut()
	bustest.Eventually(t, "the connection is lost", func() bool { return !c.conn.Reachable() })
	if again {
		way.Heal()
		way.Open()
		bustest.Eventually(t, "NATS is back", c.conn.Reachable)
	}
	l.finish(held[0])
	return bustest.Receive(t, "the end", said, 1)[0]
}

// mutation: an end that asks for the feeds after some have ended.
func TestConsumer_TheStopTellsOfEachPartitionThatCouldNotGiveBack(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	c := newTestConsumer(t, s, ackWait(time.Minute))
	watch(t, c.conn)
	const n = 200
	got, consumed := make(chan *Delivery, n), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	go func() { consumed <- c.Consume(ctx, func(_ context.Context, d *Delivery) { got <- d }) }()
	held := map[int]bool{}
	for i := range n {
		bustest.Answer(t, c.conn, bustest.JobID(i), bustest.Succeeded)
		held[partitionOf(bustest.JobID(i))] = true
	}
	bustest.Receive(t, "results", got, n)
	s.Shutdown()
	bustest.Eventually(t, "the outage is known", func() bool { return !c.conn.Outage().IsZero() })
	cancel()
	err := bustest.Receive(t, "Consume returns", consumed, 1)[0]
	if told := strings.Count(fmt.Sprint(err), "drain "); told != len(held) {
		t.Errorf("it tells of %d partitions, want %d: %v", told, len(held), err)
	}
}

func gaveBack(l *ledger) bool {
	returned, _ := l.gaveBack()
	return returned
}

// mutations: a ledger that forgets what a settlement gives back beside the drain, or that counts
// what one did before.
func TestWhatASettlementGivesBackIsForTheNextOwnerOnceTheLedgerDrains(t *testing.T) {
	t.Parallel()
	var sent []string
	l, now := newLedger(newReturns()), time.Unix(1000, 0)
	settling := func(sequence uint64) *Delivery {
		d := &Delivery{ledger: l, key: messageKey{sequence: sequence}, receipt: wire{name: "m", sent: &sent}}
		l.admit(d, now, nil)
		if ok, err := l.claim(d); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return d
	}
	before, beside := settling(1), settling(2)
	if err := l.giveBack(before, verdict{}, now); err != nil || gaveBack(l) {
		t.Error("before the drain", err)
	}
	_, err := l.drain(now)
	if err != nil || gaveBack(l) {
		t.Error("nothing is open", err)
	}
	if err := l.giveBack(beside, verdict{}, now); err != nil || !gaveBack(l) || len(sent) != 2 {
		t.Error("beside the drain", err, sent)
	}
}

// deaf is a receipt whose NAK cannot be sent.
type deaf struct {
	receipt
	err error
}

func (d deaf) Nak() error                       { return d.err }
func (d deaf) NakWithDelay(time.Duration) error { return d.err }

// Who caused such a NAK does not tell who leaves: the caller of Settle, or nobody.
//
// mutations: a ledger that forgets the error of either, or that tells of a stream that is gone, or
// of one before the drain.
func TestAResultThatCouldNotBeGivenBackBesideTheDrainIsTold(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		late, before bool // it comes after the drain began; its settlement ends before
		err, want    error
	}{
		"a settlement under way":        {err: bus.ErrUnreachable, want: bus.ErrUnreachable},
		"a late delivery":               {late: true, err: bus.ErrUnreachable, want: bus.ErrUnreachable},
		"a late one of a lost stream":   {late: true, err: bus.ErrStreamLost},
		"a settlement before the drain": {before: true, err: bus.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := offline(t, bus.Config{}, Options{})
			l := newLedger(conn.returns)
			d := &Delivery{ledger: l, receipt: deaf{err: c.err}}
			if !c.late {
				l.admit(d, now, nil)
				if ok, err := l.claim(d); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			if c.before {
				_ = l.giveBack(d, verdict{}, now)
			}
			if _, err := l.drain(now); err != nil {
				t.Fatal(err)
			}
			switch {
			case c.late:
				l.admit(d, now, nil)
			case !c.before:
				_ = l.giveBack(d, verdict{}, now)
			}
			if _, err := l.gaveBack(); !errors.Is(err, c.want) {
				t.Errorf("the ledger says %v", err)
			}
			one := &running{feed: &feed{ledger: l, name: "results-1"}}
			if told := fmt.Sprint(conn.gaveBack(t.Context(), []*running{one})); c.want != nil && !strings.Contains(told, "results-1") {
				t.Errorf("who leaves is told %s", told)
			}
		})
	}
}

// What was given back of one partition says nothing of another.
//
// mutation: any of them asked for all.
func TestConsumer_WhoHeldNothingLeavesWellWithoutNATS(t *testing.T) {
	t.Parallel()
	c := followAll(offline(t, bus.Config{}, Options{}))
	var sent []string
	l := newLedger(c.returns)
	l.admit(&Delivery{ledger: l, receipt: wire{name: "m", sent: &sent}}, time.Now(), nil)
	if _, err := l.drain(time.Now()); err != nil || len(sent) != 1 {
		t.Fatal(sent, err)
	}
	stop := consume(t, c, func(context.Context, *Delivery) {})
	bustest.Eventually(t, "Consume runs", func() bool {
		c.following.mu.Lock()
		defer c.following.mu.Unlock()
		return len(c.following.feeds) > 0
	})
	if err := c.Leave(t.Context(), 0, 1); err != nil {
		t.Error(err)
	}
	stop()
}

// A process that stops while NATS is away ends well, if it held nothing.
//
// mutation: a flush that is an error though nothing was given back.
func TestConsumer_WhoHeldNothingEndsWellWithoutNATS(t *testing.T) {
	t.Parallel()
	c := followAll(offline(t, bus.Config{}, Options{}))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Consume(ctx, func(context.Context, *Delivery) {}); err != nil {
		t.Error(err)
	}
}
