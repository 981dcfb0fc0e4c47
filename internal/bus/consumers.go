// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"maps"

	"github.com/nats-io/nats.go/jetstream"
)

// Ensured is a consumer on the server.
type Ensured struct {
	jetstream.Consumer
	WasThere bool
	Differs  bool // it has other settings than wanted, and is taken as it is: see ReportDrift
}

// EnsureConsumer takes the existing consumer, or creates it. It looks first: to be asked to create
// what exists costs the server more.
func (c *Conn) EnsureConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (Ensured, error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	take := func(before bool) (Ensured, error) {
		consumer, err := c.JetStream.Consumer(ctx, stream, want.Durable)
		if err != nil {
			return Ensured{}, err
		}
		return Ensured{Consumer: consumer, WasThere: before, Differs: len(consumerDrift(want, consumer.CachedInfo().Config)) > 0}, nil
	}
	if found, err := take(true); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return found, err
	}
	consumer, err := c.JetStream.CreateConsumer(ctx, stream, want)
	if errors.Is(err, jetstream.ErrConsumerExists) { // somebody else made it meanwhile
		return take(false)
	}
	return Ensured{Consumer: consumer}, err
}

// ReportDrift logs which settings of a consumer are not as wanted.
func (c *Conn) ReportDrift(want, got jetstream.ConsumerConfig) {
	for _, d := range consumerDrift(want, got) {
		c.Log.Info("Consumer differs from the configuration", "consumer", d.Object, "field", d.Field, "want", d.Want, "got", d.Got)
	}
}

// RaiseBound lets a consumer have as many messages unanswered as wanted, if it may have fewer. What
// it has delivered stays as it is, and so do pulls that wait. Where it may have more that is left
// alone, and so is all else, but for the metadata that are wanted: an administrator may
// have changed it. got is taken as it is where the server refuses, which the log tells
// with the consequence.
func RaiseBound(
	ctx context.Context, c *Conn, stream string, want jetstream.ConsumerConfig, got jetstream.Consumer, consequence string,
) jetstream.Consumer {
	raised := got.CachedInfo().Config
	if raised.MaxAckPending < 0 || raised.MaxAckPending >= want.MaxAckPending {
		return got
	}
	was := raised.MaxAckPending
	raised.MaxAckPending = want.MaxAckPending
	if raised.Metadata = maps.Clone(raised.Metadata); raised.Metadata == nil {
		raised.Metadata = map[string]string{}
	}
	maps.Copy(raised.Metadata, want.Metadata)
	call, cancel := c.Bounded(ctx) // a user of NATS that may not do it gets no answer
	defer cancel()
	updated, err := c.JetStream.UpdateConsumer(call, stream, raised)
	if err != nil {
		if ctx.Err() == nil { // else whoever wanted it is gone: the next one raises the bound
			c.Log.Error(err, "Consumer keeps its bound: "+consequence, "consumer", raised.Durable, "bound", was)
		}
		return got
	}
	c.Log.Info("Consumer has a higher bound", "consumer", raised.Durable, "was", was, "is", want.MaxAckPending)
	return updated
}
