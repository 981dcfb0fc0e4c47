// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

func watch(t *testing.T, b *broker) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var watching sync.WaitGroup
	watching.Go(func() { b.Watch(ctx) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
}

// The server is stopped, not closed: its connections stay open, and nothing answers.
func TestAStoppedServerIsKnownSoon(t *testing.T) {
	t.Parallel()
	s := natstest.StartProcess(t)
	b := wire(bustest.Connect(t, bus.Config{URL: s.URL()}), bustest.Keys(t))
	if err := b.jobs.Publish(t.Context(), testJob(1)); err != nil {
		t.Fatal(err)
	}
	watch(t, b)
	if at := b.Outage(); !at.IsZero() || !b.Connected() {
		t.Fatalf("an outage since %s", at)
	}

	s.Pause()
	err := b.jobs.Publish(t.Context(), testJob(2)) // under way when the outage is noticed
	if !errors.Is(err, bus.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a publish fails with %v, want the outage to end it before its time", err)
	}
	if b.Outage().IsZero() || b.Connected() {
		t.Error("the outage is not known")
	}
	if err := b.Ready(t.Context()); !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("ready: %v", err)
	}
	at := time.Now()
	if err := b.jobs.Publish(t.Context(), testJob(3)); !errors.Is(err, bus.ErrUnreachable) || time.Since(at) > 2*time.Second {
		t.Errorf("the next publish fails after %s with %v", time.Since(at), err)
	}
	bustest.Receive(t, "the news of the outage", b.OutageChanged(), 1)

	s.Resume()
	bustest.Receive(t, "the news of its end", b.OutageChanged(), 1)
	if at := b.Outage(); !at.IsZero() {
		t.Errorf("an outage since %s, though it is over", at)
	}
	bustest.Eventually(t, "the bus works again", func() bool { return b.jobs.Publish(t.Context(), testJob(3)) == nil })
}
