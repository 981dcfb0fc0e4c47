// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
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

// hangBound is what a call may take while NATS hangs, on a machine that has much to do: one write
// waits for its time-out, and who comes after it for the connection to the next server. The
// library's own time-out of a write is a minute.
const hangBound = 30 * time.Second

// hung is a consumer that holds results, and two ways to its server. It is connected by the first.
type hung struct {
	*Consumer
	first, second *door.Door
	got           <-chan *Delivery
	held          []*Delivery
}

func newHung(t *testing.T) *hung {
	t.Helper()
	s := natstest.Start(t)
	address := strings.TrimPrefix(s.URL(), "nats://")
	h := &hung{first: door.New(t, address), second: door.New(t, address)}
	h.second.Shut()
	h.Consumer = newTestConsumer(t, s, ackWait(3*time.Second), func(c *config) { c.URL = "nats://" + h.first.Addr() + ",nats://" + h.second.Addr() })
	h.got, _ = collect(t, h.Consumer)
	const n = 200
	for i := range n {
		bustest.Answer(t, h.conn, bustest.JobID(i), bustest.Succeeded)
	}
	h.held = bustest.Receive(t, "results", h.got, n)
	watch(t, h.conn)
	return h
}

// watch has a connection watched until the test ends.
func watch(t *testing.T, c *bus.Conn) {
	t.Helper()
	watching, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() { c.Watch(watching) })
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
}

// hang has the server read nothing more, and fills what is between, as large jobs do.
func (h *hung) hang(t *testing.T) {
	t.Helper()
	h.first.Poison(door.Up, door.Fault{Unread: true})
	var over atomic.Bool
	var filling sync.WaitGroup
	filling.Go(func() {
		for !over.Load() && h.conn.NATS.Publish("large", make([]byte, 64<<10)) == nil {
		}
	})
	t.Cleanup(func() {
		over.Store(true)
		h.first.Shut()
		filling.Wait()
	})
}

// within fails the test if a call takes too long.
func within(t *testing.T, what string, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(hangBound):
		t.Fatalf("%s takes more than %s", what, hangBound)
	}
}

// A machine that lost its power, or a process that is stopped, takes nothing: the buffers fill, and
// a write waits with the lock of the connection held.
//
// mutation: writes without a time-out of seconds.
func TestAServerThatReadsNothingHoldsNobodyUpForLong(t *testing.T) {
	t.Parallel()
	h := newHung(t)
	before := h.conn.Generation()
	h.second.Open()
	h.hang(t)
	held := h.held
	bustest.Eventually(t, "the client is at the second server", func() bool {
		within(t, "Leave", func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = h.Leave(ctx, 0)
		})
		within(t, "Follow", func() { h.Follow(0) })
		within(t, "Parked", func() { h.Parked() })
		within(t, "Connected", func() { h.conn.Connected() })
		within(t, "an ack", func() { _ = held[0].Settle(t.Context(), nil) })
		within(t, "a NAK", func() { _ = held[1].Settle(t.Context(), errors.New("again")) })
		held = held[2:]
		return h.conn.Generation() > before || len(held) < 2
	})
	if h.conn.Generation() == before {
		t.Fatal("all is settled, and the client is where it was")
	}
	bustest.Answer(t, h.conn, bustest.JobID(1000), bustest.Succeeded)
	bustest.Eventually(t, "results come again", func() bool { return bustest.Receive(t, "results", h.got, 1)[0].ID == bustest.JobID(1000) })
}

// mutation: a round with the lock held never ends.
func TestARoundOverAllThatIsFollowedKeepsNobodyFromFollowing(t *testing.T) {
	t.Parallel()
	c := offline(t, bus.Config{}, Options{})
	c.following.feeds[1] = &running{feed: &feed{partition: 1}, stop: func() {}}
	within(t, "a round", func() { c.following.each(func(*feed) { c.Follow(2) }) })
}

// What is sent while nobody reads fills the socket, and holds its sender up.
//
// mutation: a receipt that does not ask for the outage gets the library's error.
func TestNoReceiptIsSentDuringAnOutage(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Now())
	c := offline(t, bus.Config{Clock: clk}, Options{})
	watch(t, c.conn)
	bustest.Eventually(t, "the outage is known", func() bool {
		clk.Step(time.Second)
		return !c.conn.Outage().IsZero()
	})
	s := c.receiptOf("reply")
	for name, err := range map[string]error{
		"ack": s.DoubleAck(t.Context()), "NAK": s.Nak(), "NAK with delay": s.NakWithDelay(time.Second), "in progress": s.InProgress(),
		"term": s.TermWithReason("no"),
	} {
		if !errors.Is(err, bus.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
