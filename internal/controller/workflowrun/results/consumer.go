// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/bus"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// streamLogEvery is how many tries to make the streams are logged as one.
	streamLogEvery = 30
	// streamRetry is the wait before the streams are asked for again while NATS cannot be reached.
	streamRetry = time.Second
)

// streams makes the streams; *bus.Conn does.
type streams interface {
	EnsureStreams(ctx context.Context) error
}

// source is where results come from; *busresults.Consumer is one.
type source interface {
	Consume(ctx context.Context, accept func(context.Context, *busresults.Delivery)) error
}

// Consumer makes the streams and takes results until its context ends.
type Consumer struct {
	nats   streams
	source source
	router *Router
}

// NewConsumer makes a consumer of results.
func NewConsumer(nats streams, s source, r *Router) *Consumer {
	return &Consumer{nats: nats, source: s, router: r}
}

// Start implements manager.Runnable. It goes on to wait for the streams when another installation
// took them over.
func (c *Consumer) Start(ctx context.Context) error {
	for {
		if !c.ensure(ctx) {
			return nil
		}
		err := c.source.Consume(ctx, c.router.Accept)
		if _, foreign := errors.AsType[*bus.ForeignError](err); foreign && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Results are not taken any more")
			c.router.Forget(all()) // they were given back, and come anew
			continue
		}
		if err != nil {
			return fmt.Errorf("consume results: %w", err)
		}
		return nil
	}
}

func all() map[int]bool {
	of := map[int]bool{}
	for _, n := range protocol.AllPartitions() {
		of[n] = true
	}
	return of
}

// ensure makes the streams, and tries until they are there and ours; false: ctx ended.
func (c *Consumer) ensure(ctx context.Context) bool {
	for try := 0; ; try++ {
		err := c.nats.EnsureStreams(ctx)
		var drift *bus.DriftError
		if err == nil || errors.As(err, &drift) {
			return true // the bus has logged the drift; streams with other settings work, and an administrator may want them so
		}
		if ctx.Err() != nil {
			return false
		}
		if try%streamLogEvery == 0 {
			log.FromContext(ctx).Info("Streams are not ready, trying on", "delay", streamRetry, "cause", err.Error())
		}
		select {
		case <-ctx.Done():
			return false
		case <-c.router.Clock.After(streamRetry):
		}
	}
}
