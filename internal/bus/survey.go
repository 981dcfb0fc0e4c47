// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// survey looks at all streams before one is made or named. A stream that is gone does not say whose
// it was, and the others may: whoever is refused must not make it anew before its operator does.
// Who was refused leaves streams that name nobody to the one before for claimAfter.
//
// It also notes which streams are gone that were there: so the waits for all of them end at the
// same time. Errors: *RetryError, of a *ForeignError or of NATS.
func survey(ctx context.Context, c *Conn, configs []jetstream.StreamConfig) error {
	somebodys, err := sight(ctx, c, configs)
	switch {
	case IsForeign(err):
		return c.Retryable("look at the streams", err)
	case somebodys || c.config.Installation == "" || c.owner.get().ours:
		return nil // one without an answer keeps no other from being made: who asks next tells of it
	case err != nil:
		return c.Retryable("look at the streams", err)
	}
	if err := c.owner.waits(c.Clock.Now()); err != nil {
		return c.Retryable("create streams", err)
	}
	return nil
}

// sight says whether a stream has the names of an operator: ours, or the one to take over from. It
// ends with the first that is foreign, or has no answer.
func sight(ctx context.Context, c *Conn, configs []jetstream.StreamConfig) (somebodys bool, err error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	names := make([]string, 0, len(configs)+1)
	for _, want := range configs {
		names = append(names, want.Name)
	}
	for _, name := range append(names, c.Names.PayloadsStream()) {
		s, err := askFor(ctx, c, name)
		if errors.Is(err, errRemoved) || errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return somebodys, err
		}
		if err := c.check(ctx, s.CachedInfo().Config); err != nil {
			return somebodys, err
		}
		somebodys = somebodys || namesSomebody(c, s.CachedInfo().Config)
	}
	return somebodys, nil
}

// namesSomebody says whether a stream that is not of others has the names of an operator.
func namesSomebody(c *Conn, got jetstream.StreamConfig) bool {
	theirs := got.Metadata[installationKey]
	return named(c, got) || theirs != "" && (theirs != c.config.Installation || got.Metadata[homeKey] != "")
}
