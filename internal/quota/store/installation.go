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

// Own looks whose Redis is, and makes it this installation's if it is nobody's.
//
// Errors: *ForeignError, and those of Redis.
func Own(ctx context.Context, g *Store) error {
	if g.opts.Installation == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	began := g.opts.Clock.Now()
	got, err := installationScript.Run(ctx, g.client, []string{ownerKey(g)}, g.opts.Installation, g.opts.TakeOver).StringSlice()
	switch {
	case err != nil:
		return fmt.Errorf("ask whose Redis this is: %w", g.opts.Explain(err))
	case len(got) != lookWords:
		return fmt.Errorf("ask whose Redis this is: the script answered %.200q", fmt.Sprint(got))
	case got[1] != g.opts.Installation:
		looked(g, time.Time{})
		return &ForeignError{Theirs: got[1], Ours: g.opts.Installation}
	case got[0] != got[1]:
		g.opts.Log.Info("Redis is this installation's from now on", "installation", got[1], "before", got[0])
	}
	looked(g, began)
	return nil
}

// own is Own for calls, which need not ask each time.
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

// looked notes when Redis was found to be this installation's; zero: the next call looks again.
func looked(g *Store, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looked = at
}

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
