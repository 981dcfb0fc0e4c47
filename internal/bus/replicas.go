// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// raiseAgain is after how long streams that have too little are tried again, and so is NATS
// after an update that it did not answer.
const raiseAgain = 5 * time.Minute

// errRests says that no update was tried, as NATS did not answer the one before.
var errRests = errors.New("NATS did not answer the last update")

// raises is what is known of streams that are to have more bytes or replicas.
type raises struct {
	mu    sync.Mutex
	due   time.Time         // when streams that have too little are tried again; zero: there are none
	rests time.Time         // until then no update is tried
	said  map[string]string // why a stream does not get more, as last logged
}

// later has streams tried again.
func (r *raises) later(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.IsZero() {
		r.due = now.Add(raiseAgain)
	}
}

// begin says whether streams are to be tried again now.
func (r *raises) begin(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.IsZero() || now.Before(r.due) {
		return false
	}
	r.due = time.Time{}
	return true
}

// resting says whether no update is to be tried.
func (r *raises) resting(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.rests)
}

// rest has no update tried for a while.
func (r *raises) rest(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rests = now.Add(raiseAgain)
}

// isNew says whether something else than before is to be logged of a stream.
func (r *raises) isNew(stream, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said == nil {
		r.said = map[string]string{}
	}
	before := r.said[stream]
	r.said[stream] = text
	return before != text
}

// enlarge gives a stream of ours what it is to have more of: replicas, bytes and messages of one
// subject. They are requests of their own, since a server that refuses one may do the others. A
// stream works without them: what NATS refuses or does not answer, as where the user has no right
// to it, is drift and no failure.
func enlarge(ctx context.Context, c *Conn, s jetstream.Stream, got, want jetstream.StreamConfig) jetstream.StreamConfig {
	before := got.MaxBytes
	got = bound(ctx, c, s, replicate(ctx, c, s, got, want.Replicas), want.MaxBytes)
	return boundSubjects(ctx, c, s, got, want, before)
}

// replicate gives a stream of ours as many replicas as it is to have, if it has fewer. Its
// consumers follow. It takes none away: another replica of the operator may have an older flag, or
// an administrator wants more. What cannot be done now is tried again by raise.
func replicate(ctx context.Context, c *Conn, s jetstream.Stream, got jetstream.StreamConfig, want int) jetstream.StreamConfig {
	if got.Replicas >= want {
		return got
	}
	if leaderless(s.CachedInfo()) {
		c.raises.later(c.Clock.Now())
		return got
	}
	updated, err := improve(ctx, c, s, func(more *jetstream.StreamConfig) { more.Replicas = max(more.Replicas, want) })
	if err != nil {
		c.raises.later(c.Clock.Now())
		refused(c, "Stream gets no more replicas", got.Name, err, "replicas", want, "has", got.Replicas)
		return got
	}
	c.Log.Info("Stream has more replicas", "stream", got.Name, "replicas", want, "before", got.Replicas)
	return updated
}

// raise gives streams what NATS refused them some time ago, or could not be asked for: servers come
// back, and the operator may not restart for months.
func raise(ctx context.Context, c *Conn) {
	if !c.raises.begin(c.Clock.Now()) {
		return
	}
	for _, want := range c.streamConfigs() {
		raiseOne(ctx, c, want)
	}
	payloads := c.payloadConfig()
	raiseOne(ctx, c, jetstream.StreamConfig{Name: c.Names.PayloadsStream(), MaxBytes: payloads.MaxBytes, Replicas: payloads.Replicas})
}

func raiseOne(ctx context.Context, c *Conn, want jetstream.StreamConfig) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	s, err := c.JetStream.Stream(ctx, want.Name)
	got := jetstream.StreamConfig{}
	if err == nil {
		got, err = own(ctx, c, s)
	}
	if err != nil {
		c.raises.later(c.Clock.Now())
		return
	}
	enlarge(ctx, c, s, got, want)
}

// improve is edit for what a stream can do without. After an update that NATS did not answer it
// rests: each costs all the time that the caller has.
func improve(ctx context.Context, c *Conn, s jetstream.Stream, change func(*jetstream.StreamConfig)) (jetstream.StreamConfig, error) {
	if c.raises.resting(c.Clock.Now()) {
		return jetstream.StreamConfig{}, errRests
	}
	updated, err := edit(ctx, c, s, change)
	if errors.Is(err, context.DeadlineExceeded) {
		c.raises.rest(c.Clock.Now())
	}
	return updated, err
}

// edit changes a stream as it is now. An update sends all settings, and another replica of the
// operator, which starts at the same time, may have changed one since the stream was read.
func edit(ctx context.Context, c *Conn, s jetstream.Stream, change func(*jetstream.StreamConfig)) (jetstream.StreamConfig, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	config := info.Config
	change(&config)
	updated, err := c.JetStream.UpdateStream(ctx, config)
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	return updated.CachedInfo().Config, nil
}

// refused logs why a stream does not get more, once for each cause.
func refused(c *Conn, what, stream string, err error, more ...any) {
	log := c.Log.V(1)
	if !errors.Is(err, errRests) && c.raises.isNew(what+" "+stream, err.Error()) {
		log = c.Log
	}
	log.Info(what+", and works without", append([]any{"stream", stream, "cause", err.Error()}, more...)...)
}
