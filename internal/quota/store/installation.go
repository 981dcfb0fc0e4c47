// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/installation.lua
var installationSource string

var installationScript = redis.NewScript(installationSource)

const (
	// lookEvery is for how long it is taken for what it was.
	lookEvery = time.Second
	// lookWords is how much the script answers.
	lookWords = 2
	// claimAfter is for how long who was refused leaves a Redis that names nobody to
	// the one before.
	claimAfter = time.Minute
)

// ForeignError says that Redis belongs to another installation. Each would take the slots and locks
// of the other for those of deleted runs, and drop them. An administrator can change whose it is.
type ForeignError struct {
	Theirs string // the installation that Redis names
	Ours   string // Options.Installation
}

// Error implements error.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("Redis belongs to installation %s, and this one is %s: give each a Redis of its own, or, if the other one is gone for good, "+
		"take over what it left with --nats-take-over=%s", e.Theirs, e.Ours, e.Theirs)
}

// whose is what a Store knows of whose Redis is.
type whose struct {
	looked   time.Time     // when it was last asked, and found to be this installation's; zero: look again
	doubts   int           // how often looked was made zero
	foreign  *ForeignError // the last one; nil: none, or Redis is this installation's since
	nameless time.Time     // since when Redis names nobody, of one that was foreign; zero: it names somebody
}

// doubt has the next call look again, also where a look is under way.
func (w *whose) doubt() { w.looked, w.doubts = time.Time{}, w.doubts+1 }

// Own looks whose Redis is, and makes it this installation's if it is nobody's. A Redis that was
// another's lost its data when it is nobody's: for a minute it is left to that one,
// which looks, too.
//
// Errors: *ForeignError, and those of Redis.
func Own(ctx context.Context, g *Store) error {
	if g.opts.Installation == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	began := g.opts.Clock.Now()
	g.mu.Lock()
	before := g.whose
	g.mu.Unlock()
	claims := before.foreign == nil || !before.nameless.IsZero() && began.Sub(before.nameless) >= claimAfter
	got, err := installationScript.Run(ctx, g.client, []string{ownerKey(g)}, g.opts.Installation, g.opts.TakeOver, claims).StringSlice()
	switch {
	case err != nil:
		return fmt.Errorf("ask whose Redis this is: %w", g.opts.Explain(err))
	case len(got) != lookWords:
		return fmt.Errorf("ask whose Redis this is: the script answered %.200q", fmt.Sprint(got))
	case got[1] != g.opts.Installation:
		return foreign(g, before, got[1], began)
	case got[0] != got[1]:
		g.opts.Log.Info("Redis is this installation's from now on", "installation", got[1], "before", got[0])
	}
	ours(g, before, began)
	return nil
}

// foreign notes that Redis is another installation's, or was before it lost its data: theirs is
// empty then. before is what was known when the look began.
func foreign(g *Store, before whose, theirs string, began time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubt()
	if theirs != "" {
		g.foreign, g.nameless = &ForeignError{Theirs: theirs, Ours: g.opts.Installation}, time.Time{}
		return g.foreign
	}
	if g.nameless.IsZero() {
		g.nameless = began
	}
	return before.foreign
}

// ours notes that Redis is this installation's. Whoever doubted that since the look began may know
// of something that came after it.
func ours(g *Store, before whose, began time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.foreign, g.nameless = nil, time.Time{}
	if g.doubts == before.doubts {
		g.looked = began
	}
}

// own is Own for calls, which need not ask each time. It has its own time: a slow Redis answers
// both a look and the call after it, or would let nobody in.
func own(ctx context.Context, g *Store) error {
	g.mu.Lock()
	at := g.looked
	g.mu.Unlock()
	if !at.IsZero() && g.opts.Clock.Since(at) < lookEvery {
		return nil
	}
	return Own(ctx, g)
}

// ownerKey is the Redis key that names the installation.
func ownerKey(g *Store) string { return "{" + g.opts.KeyPrefix + "adm-installation}" }

// Installation is whose Redis is, as it says; "": it does not say it.
func Installation(ctx context.Context, g *Store) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	name, err := g.client.Get(ctx, ownerKey(g)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("ask whose Redis this is: %w", g.opts.Explain(err))
	}
	return name, nil
}
