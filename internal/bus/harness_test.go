// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// broker is a connection with all that uses it, wired as in the operator.
type broker struct {
	*bus.Conn
	jobs     *jobs.Queue
	reader   *results.Reader
	results  *results.Consumer
	payloads *payloads.Store
}

func wire(conn *bus.Conn, keys *keys.Live) *broker {
	b := &broker{Conn: conn, reader: results.NewReader(conn, keys), payloads: payloads.New(conn)}
	b.jobs = jobs.New(conn, keys, b.reader, jobs.Options{})
	b.results = results.NewConsumer(conn, keys, deadletters.NewWriter(conn), results.Options{})
	b.results.Follow(protocol.AllPartitions()...)
	return b
}

// newBroker makes a broker with its streams; it is closed when the test ends.
func newBroker(t testing.TB, s *natstest.Server, adjust ...func(*bus.Config)) *broker {
	t.Helper()
	config := bus.Config{URL: s.URL()}
	for _, f := range adjust {
		f(&config)
	}
	return wire(bustest.Connect(t, config), bustest.Keys(t))
}

func testJob(n int) jobs.Job {
	return jobs.Job{ID: bustest.JobID(n), Topic: "web.fetch", Input: json.RawMessage(`{"n":1}`), Fence: 7, Source: "/runs/test"}
}

// collect consumes into a channel until stop, which waits for the end, or until the test ends.
func collect(t *testing.T, b *broker) (<-chan *results.Delivery, func()) {
	t.Helper()
	got := make(chan *results.Delivery, 10_000)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.results.Consume(ctx, func(_ context.Context, d *results.Delivery) { got <- d }) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := bustest.Receive(t, "Consume returns", done, 1)[0]; err != nil && b.Connected() {
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
