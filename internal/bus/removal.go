// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// removal is how long a server may take to remove a stream whose name it has forgotten already. It
// took 70 ms with 64 consumers on a busy machine.
const removal = 2 * time.Second

// removals are the streams that were there on this server, and since when those of them are
// gone that were deleted.
type removals struct {
	mu     sync.Mutex
	gone   map[string]time.Time // zero: it is there
	server string               // of the connection; another one each time that it starts
}

// sawThere notes that a stream is there.
func (r *removals) sawThere(stream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone == nil {
		r.gone = map[string]time.Time{}
	}
	r.gone[stream] = time.Time{}
}

// sawGone notes that a stream is not there. Of one that never was there is nothing to remove.
func (r *removals) sawGone(stream string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since, was := r.gone[stream]; was && since.IsZero() {
		r.gone[stream] = now
	}
}

// isThere says whether a stream was there when it was last asked for.
func (r *removals) isThere(stream string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, was := r.gone[stream]
	return was && since.IsZero()
}

// left is for how long a stream may still be being removed.
func (r *removals) left(stream string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.gone[stream]
	if since.IsZero() {
		return 0
	}
	return removal - now.Sub(since)
}

// on forgets all where the server is not the one before: that one started anew removes nothing.
func (r *removals) on(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if server != "" && server != r.server { // none: the connection broke again
		clear(r.gone)
		r.server = server
	}
}

// errRemoved is told of a stream that is being removed, maybe: awaitRemoval waits for that.
var errRemoved = errors.New("the stream was removed")

// askFor gets a stream. Errors: errRemoved, and those of the library.
func askFor(ctx context.Context, c *Conn, name string) (jetstream.Stream, error) {
	s, err := c.JetStream.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		now := c.Clock.Now()
		c.removals.sawGone(name, now)
		if c.removals.left(name, now) > 0 { // as it, or another call, saw
			return nil, errRemoved
		}
	}
	return s, err
}

// awaitRemoval waits until a stream is removed that was there on this server and was deleted. A
// server alone (2.15.2) forgets the name first, then ends the consumers, and at last removes the
// directory of that name. Made anew before that, a stream loses its directory: it is there, stores
// nothing and answers no publish, or has messages of the one before. Whoever finds it gone later
// waits for what is left.
func awaitRemoval(ctx context.Context, c *Conn, name string) error {
	left := c.removals.left(name, c.Clock.Now())
	if left <= 0 {
		return nil
	}
	ctx, cancel := c.Bounded(ctx) // an outage ends the wait, too
	defer cancel()
	if !c.Wait(ctx, left) {
		return context.Cause(ctx)
	}
	return nil
}
