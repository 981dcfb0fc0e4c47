// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

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
