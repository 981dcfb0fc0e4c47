package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

const (
	// streamLogEvery is how many tries to make the streams are logged as one.
	streamLogEvery = 30
	// streamRetry is the wait before the streams are asked for again while NATS cannot be reached.
	streamRetry = time.Second
)

// stream is where results come from; *bus.Bus is one.
type stream interface {
	EnsureStreams(ctx context.Context) error
	Consume(ctx context.Context, accept func(context.Context, *bus.Delivery)) error
}

// Consumer makes the streams and takes results until its context ends.
type Consumer struct {
	bus    stream
	router *Router
}

// NewConsumer makes the consumer of a bus.
func NewConsumer(b stream, r *Router) *Consumer { return &Consumer{bus: b, router: r} }

// Start implements manager.Runnable. It goes on to wait for the streams when another installation took them over.
func (c *Consumer) Start(ctx context.Context) error {
	for {
		if !c.streams(ctx) {
			return nil
		}
		err := c.bus.Consume(ctx, c.router.Accept)
		if _, foreign := errors.AsType[*bus.ForeignError](err); foreign && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Results are not taken any more")
			continue
		}
		if err != nil {
			return fmt.Errorf("consume results: %w", err)
		}
		return nil
	}
}

// streams makes the streams, and tries until they are there and ours; false: ctx ended.
func (c *Consumer) streams(ctx context.Context) bool {
	for try := 0; ; try++ {
		err := c.bus.EnsureStreams(ctx)
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
