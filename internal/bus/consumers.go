// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// EnsureConsumer takes the existing consumer, or creates it. differs says that the existing one has
// other settings and is taken as it is: see ReportDrift. It looks first: to be asked to create what
// exists costs the server more.
func (c *Conn) EnsureConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (consumer jetstream.Consumer, differs bool, err error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	take := func() (jetstream.Consumer, bool, error) {
		consumer, err := c.JetStream.Consumer(ctx, stream, want.Durable)
		if err != nil {
			return nil, false, err
		}
		return consumer, len(consumerDrift(want, consumer.CachedInfo().Config)) > 0, nil
	}
	if consumer, differs, err = take(); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return consumer, differs, err
	}
	consumer, err = c.JetStream.CreateConsumer(ctx, stream, want)
	if errors.Is(err, jetstream.ErrConsumerExists) { // somebody else made it meanwhile
		return take()
	}
	return consumer, false, err
}

// ReportDrift logs which settings of a consumer are not as wanted.
func (c *Conn) ReportDrift(want, got jetstream.ConsumerConfig) {
	for _, d := range consumerDrift(want, got) {
		c.Log.Info("Consumer differs from the configuration", "consumer", d.Object, "field", d.Field, "want", d.Want, "got", d.Got)
	}
}
