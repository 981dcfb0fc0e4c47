// SPDX-License-Identifier: Apache-2.0

package deadletters_test

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Leaks()...) }

// consumer is what puts results aside.
type consumer struct {
	*results.Consumer
	conn *bus.Conn
}

// newConsumer makes a consumer on a connection of its own, which is closed when the test ends.
func newConsumer(t testing.TB, s *natstest.Server, adjust ...func(*bus.Config)) *consumer {
	t.Helper()
	config := bus.Config{URL: s.URL()}
	for _, f := range adjust {
		f(&config)
	}
	conn := bustest.Connect(t, config)
	c := results.NewConsumer(conn, bustest.Keys(t), deadletters.NewWriter(conn), results.Options{})
	c.Follow(protocol.AllPartitions()...)
	return &consumer{c, conn}
}

// collect consumes into a channel until stop, which waits for the end, or until the test ends.
func collect(t *testing.T, c *consumer) (<-chan *results.Delivery, func()) {
	t.Helper()
	got := make(chan *results.Delivery, 10_000)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Consume(ctx, func(_ context.Context, d *results.Delivery) { got <- d }) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := bustest.Receive(t, "Consume returns", done, 1)[0]; err != nil && c.conn.Connected() {
			t.Errorf("Consume: %v", err)
		}
	})
	t.Cleanup(stop)
	return got, stop
}

func settle(t *testing.T, d *results.Delivery, err error) {
	t.Helper()
	if err := d.Settle(t.Context(), err); err != nil {
		t.Errorf("settle %s: %v", d.ID, err)
	}
}
