// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// EnsureConsumer creates a consumer or takes the existing one. differs says that one with other
// settings exists and is taken as it is: see ReportDrift.
func (c *Conn) EnsureConsumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) (consumer jetstream.Consumer, differs bool, err error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	consumer, refused := c.JetStream.CreateConsumer(ctx, stream, want)
	if refused == nil {
		return consumer, false, nil
	}
	// It exists, with other settings; or an account may have no new one with these, and the
	// old one works.
	consumer, err = c.JetStream.Consumer(ctx, stream, want.Durable)
	if err != nil {
		if errors.Is(refused, jetstream.ErrConsumerExists) {
			return nil, false, err
		}
		return nil, false, refused
	}
	return consumer, true, nil
}

// ReportDrift logs which settings of a consumer are not as wanted.
func (c *Conn) ReportDrift(want, got jetstream.ConsumerConfig) {
	for _, d := range consumerDrift(want, got) {
		c.Log.Info("Consumer differs from the configuration", "consumer", d.Object, "field", d.Field, "want", d.Want, "got", d.Got)
	}
}
