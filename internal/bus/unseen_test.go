// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// without answers questions about one stream in a way of its own.
type without struct {
	jetstream.JetStream
	about  string
	answer func(context.Context) error
}

func (w without) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name != w.about {
		return w.JetStream.Stream(ctx, name)
	}
	return nil, w.answer(ctx)
}

var errNoLeader = errors.New("no leader")

// mutations: unseen that says nothing, says it at each look, or does not say that it is over.
func TestTheLogSaysOnceThatAStreamCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines []string
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) {
		c.Log = funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}, funcr.Options{})
	})
	about := func() (n int, last string) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lines {
			if strings.Contains(l, "looked at") && strings.Contains(l, `"payloads"`) {
				n, last = n+1, l
			}
		}
		return n, last
	}
	whole := b.JetStream
	looked(t, b)
	b.JetStream = without{whole, b.Names.PayloadsStream(), func(context.Context) error { return errNoLeader }}
	looked(t, b)
	if n, last := about(); n != 1 || !strings.Contains(last, "no leader") {
		t.Fatalf("%d lines, the last is %s", n, last)
	}
	looked(t, b)
	if n, _ := about(); n != 1 {
		t.Errorf("after another look: %d lines", n)
	}
	b.JetStream = whole
	looked(t, b)
	looked(t, b)
	if n, last := about(); n != 2 || !strings.Contains(last, "again") {
		t.Errorf("once it can be looked at: %d lines, the last is %s", n, last)
	}
}

// Else an alert says of all of them that they cannot be used.
//
// mutation: measureOthers with one time for all of them.
func TestAStreamThatDoesNotAnswerKeepsNoOtherFromBeingMeasured(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBroker(t, natstest.Start(t), func(c *bus.Config) { c.Metrics = bus.NewMetrics(reg) })
	b.JetStream = without{b.JetStream, b.Names.DeadLettersStream(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	want := []string{"control", "jobs", "payloads", "results"}
	bustest.Eventually(t, "all others are measured", func() bool { return b.CheckStreams(t.Context()) == nil && slices.Equal(measured(t, reg), want) })
}
