// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"net/http"

	"github.com/nats-io/nats.go/jetstream"
)

// fences is the durable consumer of fence messages, and its place among the topics that are known.
// No topic begins with an underscore.
const fences = "_fence"

// keepFences makes sure that fence messages have a consumer. Nobody pulls from it. NATS lets a
// consumer acknowledge a message that it never had, and deletes what no other consumer claims: a
// worker that is confined to its topic could erase all fences. Where NATS refuses the consumer,
// for a while where it does not answer, and while another caller asks for it, there is a fence
// without one.
func (t *topics) keepFences(ctx context.Context) error {
	k := t.get(fences)
	if !k.mu.TryLock() {
		return nil
	}
	defer k.mu.Unlock()
	generation := t.conn.Generation()
	if k.isKnown(t, generation) || k.refused != nil && t.conn.Clock.Since(k.refusedAt) < refusalHolds {
		return nil
	}
	_, err := t.conn.EnsureConsumer(ctx, t.conn.Names.JobsStream(), jetstream.ConsumerConfig{
		Durable:       fences,
		FilterSubject: t.conn.Names.Prefix + ".jobs." + fences + ".>",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		MaxAckPending: 1,
	})
	refused := refuses(err)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, context.Canceled), ctx.Err() != nil:
		return err
	case err != nil && !refused:
		k.refused, k.refusedAt = err, t.conn.Clock.Now() // the next fence is not to wait for as long
		t.conn.Log.Info("Fence messages may have no consumer: it is asked for later", "consumer", fences, "cause", err.Error())
		return nil
	case refused:
		t.conn.Log.Error(err, "Fence messages have no consumer: workers could delete them", "consumer", fences)
	}
	k.refused, k.checkedAt, k.generation = nil, t.conn.Clock.Now(), generation
	return nil
}

// codeNoResources is the answer of a server that lacks what a consumer takes, though it has code
// 503. The client library has no name for it.
const codeNoResources jetstream.ErrorCode = 10023

// refuses says whether NATS refused a consumer. That it is unavailable, as while its cluster has no
// leader, is no answer: the consumer may be there.
func refuses(err error) bool {
	api, answered := errors.AsType[*jetstream.APIError](err)
	return answered && (api.Code != http.StatusServiceUnavailable || api.ErrorCode == codeNoResources)
}
