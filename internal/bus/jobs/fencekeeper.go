// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// fences is the durable consumer of fence messages, and its place among the topics that are known.
// No topic begins with an underscore.
const fences = "_fence"

// keepFences makes sure that fence messages have a consumer. Nobody pulls from it. NATS lets a
// consumer acknowledge a message that it never had, and deletes what no other consumer claims: a
// worker that is confined to its topic could erase all fences. Where NATS refuses the consumer, and
// while another caller asks for it, there is a fence without one.
func (t *topics) keepFences(ctx context.Context) error {
	k := t.get(fences)
	if !k.mu.TryLock() {
		return nil
	}
	defer k.mu.Unlock()
	generation := t.conn.Generation()
	if k.isKnown(t, generation) {
		return nil
	}
	_, err := t.conn.EnsureConsumer(ctx, t.conn.Names.JobsStream(), jetstream.ConsumerConfig{
		Durable:       fences,
		FilterSubject: t.conn.Names.Prefix + ".jobs." + fences + ".>",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		MaxAckPending: 1,
	})
	if _, refused := errors.AsType[*jetstream.APIError](err); refused && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.conn.Log.Error(err, "Fence messages have no consumer: workers could delete them", "consumer", fences)
		err = nil
	}
	if err == nil {
		k.checkedAt, k.generation = t.conn.Clock.Now(), generation
	}
	return err
}
