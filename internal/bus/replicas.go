// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// enlarge gives a stream of ours what it is to have more of: bytes and replicas. They are two
// requests, since a server that refuses one may do the other.
func enlarge(ctx context.Context, c *Conn, s jetstream.Stream, got jetstream.StreamConfig, limit int64, replicas int) (jetstream.StreamConfig, error) {
	got, err := bound(ctx, c, s, got, limit)
	if err != nil {
		return got, err
	}
	return replicate(ctx, c, s, got, replicas)
}

// replicate gives a stream of ours as many replicas as it is to have, if it has fewer. Its
// consumers follow. It takes none away: another replica of the operator may have an older flag, or
// an administrator wants more. What the server refuses, as where there is one only, is drift.
func replicate(ctx context.Context, c *Conn, s jetstream.Stream, got jetstream.StreamConfig, want int) (jetstream.StreamConfig, error) {
	if got.Replicas >= want || leaderless(s.CachedInfo()) {
		return got, nil
	}
	more := got
	more.Replicas = want
	updated, err := c.JetStream.UpdateStream(ctx, more)
	if _, refused := errors.AsType[*jetstream.APIError](err); refused {
		c.Log.Info("Stream gets no more replicas, as NATS refuses it", "stream", got.Name, "replicas", want, "has", got.Replicas, "cause", err.Error())
		return got, nil
	}
	if err != nil {
		return got, err
	}
	c.Log.Info("Stream has more replicas", "stream", got.Name, "replicas", want, "before", got.Replicas)
	return updated.CachedInfo().Config, nil
}
