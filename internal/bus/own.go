// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"
)

// own makes sure that a stream is this operator's. One that names nobody, of an operator before
// there were names, or the one to take over from, becomes ours; its settings stay. Two who do so at
// the same time both believe it, until their next look at the stream.
func own(ctx context.Context, c *Conn, s jetstream.Stream) (jetstream.StreamConfig, error) {
	got := s.CachedInfo().Config
	if err := c.check(ctx, got); err != nil || named(c, got) {
		return got, err
	}
	if got.Metadata[installationKey] == c.config.Installation {
		return settle(ctx, c, s), nil
	}
	named, err := edit(ctx, c, s, func(stream *jetstream.StreamConfig) { sign(c, stream) })
	if err != nil {
		return got, fmt.Errorf("name the installation in its metadata: %w", err)
	}
	signed(c, got)
	return named, nil
}

// keep is own for a stream in use. It worked until now, also without our names.
func keep(ctx context.Context, c *Conn, s jetstream.Stream) error {
	got := s.CachedInfo().Config
	if err := c.check(ctx, got); err != nil || named(c, got) {
		return err
	}
	settle(ctx, c, s)
	return nil
}

// settle names this operator in a stream that it may use without that: mostly one of this
// installation, with no namespace, or one that is gone or to take over from. Who may not change
// streams goes on.
func settle(ctx context.Context, c *Conn, s jetstream.Stream) jetstream.StreamConfig {
	got := s.CachedInfo().Config
	named, err := improve(ctx, c, s, func(stream *jetstream.StreamConfig) { sign(c, stream) })
	if err != nil {
		c.raises.later(c.Clock.Now())
		refused(c, "Stream does not get the namespace of its operator", got.Name, err, "namespace", c.config.Home,
			"namespaceBefore", got.Metadata[homeKey], "right", "$JS.API.STREAM.UPDATE."+got.Name)
		return got
	}
	signed(c, got)
	return named
}

// sign puts our names into the settings of a stream.
func sign(c *Conn, stream *jetstream.StreamConfig) {
	stream.Metadata = maps.Clone(stream.Metadata)
	if stream.Metadata == nil {
		stream.Metadata = map[string]string{}
	}
	maps.Copy(stream.Metadata, c.metadata())
}

// signed tells that a stream has our names. before is how it was.
func signed(c *Conn, before jetstream.StreamConfig) {
	c.Log.Info("Stream is this operator's from now on", "stream", before.Name, "installation", c.config.Installation, "namespace", c.config.Home,
		"before", before.Metadata[installationKey], "namespaceBefore", before.Metadata[homeKey])
}
