// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"sync"
	"testing"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// config is that of a consumer and of its connection.
type config struct {
	bus.Config
	Options
	keys *keys.Live
}

// useKeys has the keys read from a safe.
func useKeys(s *bustest.Safe) func(*config) {
	return func(c *config) { c.keys, _ = keys.New(bustest.Ring(), s.Load, clock.RealClock{}) } // the ring is usable
}

// newTestConsumer makes a consumer on a connection of its own, which is closed when the test ends.
func newTestConsumer(t testing.TB, s *natstest.Server, adjust ...func(*config)) *Consumer {
	t.Helper()
	c := config{Config: bus.Config{URL: s.URL()}, keys: bustest.Keys(t)}
	for _, f := range adjust {
		f(&c)
	}
	conn := bustest.Connect(t, c.Config)
	return followAll(NewConsumer(conn, c.keys, deadletters.NewWriter(conn), c.Options))
}

// offline makes a consumer without a server.
func offline(t testing.TB, c bus.Config, o Options) *Consumer {
	t.Helper()
	conn := bustest.Offline(t, c)
	return NewConsumer(conn, bustest.Keys(t), deadletters.NewWriter(conn), o)
}

// followAll has a consumer follow every partition.
func followAll(c *Consumer) *Consumer {
	c.Follow(protocol.AllPartitions()...)
	return c
}

// consume runs Consume until stop, which waits for its end, or until the test ends.
func consume(t testing.TB, c *Consumer, handle func(context.Context, *Delivery)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Consume(ctx, handle) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := bustest.Receive(t, "Consume returns", done, 1)[0]; err != nil && c.conn.Connected() {
			t.Errorf("Consume: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// followed waits until each partition has its consumer and a subscription.
func followed(t *testing.T, c *Consumer) {
	t.Helper()
	bustest.Eventually(t, "each partition is followed", func() bool {
		c.following.mu.Lock()
		defer c.following.mu.Unlock()
		for _, r := range c.following.feeds {
			if r.lastAt.Load() == nil {
				return false
			}
		}
		return len(c.following.feeds) == protocol.Partitions
	})
}

// collect consumes into a channel.
func collect(t *testing.T, c *Consumer) (<-chan *Delivery, func()) {
	t.Helper()
	got := make(chan *Delivery, 10_000)
	stop := consume(t, c, func(_ context.Context, d *Delivery) { got <- d })
	return got, stop
}

func settle(t *testing.T, d *Delivery, err error) {
	t.Helper()
	if err := d.Settle(t.Context(), err); err != nil {
		t.Errorf("settle %s: %v", d.ID, err)
	}
}

// unsettled counts, over all partitions, the results that are not delivered yet or not settled.
func unsettled(t *testing.T, c *Consumer) int {
	t.Helper()
	return bustest.Unsettled(t, c.conn)
}

// readerOf reads on the connection of a consumer.
func readerOf(c *Consumer) *Reader { return NewReader(c.conn, c.keys) }
