// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
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
// mutation: a Flush that has nothing to say without a connection.
func TestConsumer_LeaveSaysThatNobodyKnowsWhetherResultsWereGivenBack(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	c := newTestConsumer(t, s, ackWait(time.Minute))
	got, _ := collect(t, c)
	ids := inPartition(3)
	for _, id := range ids {
		bustest.Answer(t, c.conn, id, bustest.Succeeded)
	}
	held := bustest.Receive(t, "results", got, len(ids))
	l := held[0].ledger
	if ok, err := l.claim(held[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	left := make(chan error, 1)
	go func() { left <- c.Leave(t.Context(), partitionOf(ids[0])) }()
	bustest.Eventually(t, "the others are given back", func() bool { return !l.isOpen(held[1]) && !l.isOpen(held[2]) })
	s.Shutdown()
	bustest.Eventually(t, "the connection is lost", func() bool { return !c.conn.Reachable() })
	l.finish(held[0])
	if err := bustest.Receive(t, "Leave returns", left, 1)[0]; !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
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
