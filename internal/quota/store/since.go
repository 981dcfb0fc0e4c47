// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// timeScript tells the clock of the server that has a key, ms.
var timeScript = redis.NewScript("local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)")

// usage is a Redis, and how often this process has begun to use one.
type usage struct {
	name string
	use  int64
}

// moves is what a Store knows of when Redis became the one in use. A Redis that was used before
// says of itself that its data is whole, though another one was used meanwhile.
type moves struct {
	turn   chan struct{} // has one call ask Options.Since at a time
	known  usage         // what since is about
	since  int64         // data with an older term counts as lost
	tried  time.Time     // when asking failed last
	failed error
}

// used finds out since when Redis is the one in use, once for each usage.
//
// Errors: those of Redis and of Options.Since; the same one for a second, so that many callers do
// not ask one after the other.
func used(ctx context.Context, g *Store, now usage) error {
	if settledOn(g, now) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-waiting.Done():
		return fmt.Errorf("ask since when this Redis is used: %w", waiting.Err())
	}
	return askSince(ctx, g, now)
}

// askSince runs once at a time. It goes on where its caller gives up: others wait for the answer,
// and would be given that for a failure.
func askSince(ctx context.Context, g *Store, now usage) error {
	g.mu.Lock()
	failed, at := g.failed, g.tried
	done := g.known == now
	g.mu.Unlock()
	if done {
		return nil
	}
	if failed != nil && g.opts.Clock.Since(at) < lookEvery {
		return failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*g.timeout) // Redis, and the API server
	defer cancel()
	since, err := sinceOf(ctx, g, now.name)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed, g.tried = err, g.opts.Clock.Now()
	if err == nil {
		g.known, g.since = now, since
	}
	return err
}

func sinceOf(ctx context.Context, g *Store, name string) (int64, error) {
	at, err := timeScript.Run(ctx, g.client, []string{ownerKey(g)}).Int64()
	if err != nil {
		return 0, fmt.Errorf("ask Redis for the time: %w", g.opts.Explain(err))
	}
	since, err := g.opts.Since(ctx, name, at)
	if err != nil {
		return 0, fmt.Errorf("ask since when this Redis is used: %w", err)
	}
	return since, nil
}

// settledOn says whether since is known of a usage.
func settledOn(g *Store, now usage) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known == now
}
