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
	lookWords = 5
	// claimAfter is for how long who was refused leaves a Redis that names nobody to
	// the one before.
	claimAfter = time.Minute
)

// ForeignError says that Redis belongs to other operators. Those of another installation would take
// its slots and locks for those of deleted runs, and drop them. Those of another namespace would
// drive the same runs. An administrator can change whose it is.
type ForeignError struct {
	Neighbour bool   // Theirs and Ours are namespaces of one installation
	Theirs    string // the installation that Redis names
	Ours      string // Options.Installation
}

// Error implements error.
func (e *ForeignError) Error() string {
	if e.Neighbour {
		return fmt.Sprintf("Redis belongs to the operator in namespace %s, and this one is in %s: one operator serves a cluster. Stop that one and delete its "+
			"namespace, or, if the namespace is to stay, take over with --nats-take-over=%s once it is stopped", e.Theirs, e.Ours, e.Theirs)
	}
	return fmt.Sprintf("Redis belongs to installation %s, and this one is %s: give each a Redis of its own, or, if the other one is gone for good, "+
		"take over what it left with --nats-take-over=%s", e.Theirs, e.Ours, e.Theirs)
}

// whose is what a Store knows of whose Redis is.
type whose struct {
	looked   time.Time     // when it was last asked, and found to be this installation's; zero: look again
	doubts   int           // how often looked was made zero
	foreign  *ForeignError // the last one; nil: none, or Redis is this installation's since
	called   string        // the name of Redis when it was last looked; empty: it has none
	nameless time.Time     // since when Redis names nobody, of one that was foreign; zero: it names somebody
}

// doubt has the next call look again, also where a look is under way.
func (w *whose) doubt() { w.looked, w.doubts = time.Time{}, w.doubts+1 }

// Naming says which Redis the replicas of an installation use, by a name that is in it.
type Naming interface {
	// Name is how a Redis is to be called that has no name; empty: it is to stay without one.
	Name() string
	// Named is told the name that Redis has, empty for none, at each call. An error says why this
	// Redis may not be used. use is another number each time that this process has begun to use a
	// Redis, and the same for as long as nobody can use another one; 0: Options.Since is not asked.
	Named(name string) (use int64, err error)
}

// Own looks whose Redis is, and makes it this installation's if it is nobody's. A Redis that was
// another's lost its data when it is nobody's: for a minute it is left to that one,
// which looks, too.
//
// Errors: *ForeignError, those of Options.Naming and Options.Since, and those of Redis.
func Own(ctx context.Context, g *Store) error {
	if g.opts.Installation == "" {
		return nil
	}
	if err := look(ctx, g); err != nil {
		return err
	}
	return named(ctx, g)
}

// named says why Redis may not be used, though it is this installation's.
func named(ctx context.Context, g *Store) error {
	called, err := tell(g)
	if err != nil || called.use == 0 || g.opts.Since == nil {
		return err
	}
	return used(ctx, g, called)
}

// tell tells Options.Naming the name of Redis.
func tell(g *Store) (usage, error) {
	if g.opts.Naming == nil {
		return usage{}, nil
	}
	g.mu.Lock()
	name := g.called
	g.mu.Unlock()
	use, err := g.opts.Naming.Named(name)
	return usage{name, use}, err
}

// look is Own without Options.Naming.
func look(ctx context.Context, g *Store) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	began := g.opts.Clock.Now()
	g.mu.Lock()
	before := g.whose
	g.mu.Unlock()
	claims := before.foreign == nil || !before.nameless.IsZero() && began.Sub(before.nameless) >= claimAfter
	got, err := find(ctx, g, claims)
	if err != nil {
		return fmt.Errorf("ask whose Redis this is: %w", err)
	}
	theirs := got.others(g.opts)
	if got.is == "" || theirs != nil {
		return foreign(g, before, theirs, began)
	}
	if got.was != got.is || got.homeWas != got.home {
		g.opts.Log.Info("Redis is this installation's from now on", "installation", got.is, "namespace", got.home, "before", got.was, "namespaceBefore", got.homeWas)
	}
	ours(g, before, began, got.called)
	return nil
}

// names are what Redis named when a look began, and what it does since: an installation, and the
// namespace of its operators; and its own name.
type names struct{ was, is, homeWas, home, called string }

// others is whose Redis is, if it is that of other operators; nil: it is not, or names nobody.
func (n names) others(o Options) *ForeignError {
	switch {
	case n.is == "":
		return nil
	case n.is != o.Installation:
		return &ForeignError{Theirs: n.is, Ours: o.Installation}
	case n.home != o.Home:
		return &ForeignError{Neighbour: true, Theirs: n.home, Ours: o.Home}
	}
	return nil
}

// find looks whose Redis is, and takes over what may be taken over.
func find(ctx context.Context, g *Store, claims bool) (names, error) {
	got, err := readNames(ctx, g, claims, g.opts.TakeOver)
	theirs := got.others(g.opts)
	if err != nil || theirs == nil || !theirs.Neighbour || !g.opts.HomeGone(ctx, theirs.Theirs) {
		return got, err
	}
	return readNames(ctx, g, claims, theirs.Theirs)
}

// readNames runs the script. home is a namespace to take over.
func readNames(ctx context.Context, g *Store, claims bool, home string) (names, error) {
	keys, name := []string{ownerKey(g), homeKey(g), nameKey(g)}, ""
	if g.opts.Naming != nil {
		name = g.opts.Naming.Name()
	}
	got, err := installationScript.Run(ctx, g.client, keys, g.opts.Installation, g.opts.TakeOver, claims, g.opts.Home, home, name, g.opts.Nameless).StringSlice()
	if err != nil {
		return names{}, g.opts.Explain(err)
	}
	if len(got) != lookWords {
		return names{}, fmt.Errorf("the script answered %.200q", fmt.Sprint(got))
	}
	return names{was: got[0], is: got[1], homeWas: got[2], home: got[3], called: got[4]}, nil
}

// foreign notes that Redis is theirs, or was before it lost its data: theirs is nil then. before is
// what was known when the look began.
func foreign(g *Store, before whose, theirs *ForeignError, began time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubt()
	if theirs != nil {
		g.foreign, g.nameless = theirs, time.Time{}
		return g.foreign
	}
	if g.nameless.IsZero() {
		g.nameless = began
	}
	return before.foreign
}

// ours notes that Redis is this installation's. Whoever doubted that since the look began may know
// of something that came after it.
func ours(g *Store, before whose, began time.Time, called string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.foreign, g.nameless, g.called = nil, time.Time{}, called
	if g.doubts == before.doubts {
		g.looked = began
	}
}

// own is Own for calls, which need not ask each time. It has its own time: a slow Redis answers
// both a look and the call after it, or would let nobody in.
func own(ctx context.Context, g *Store) error {
	if g.opts.Installation == "" {
		return nil
	}
	if err := lately(ctx, g); err != nil {
		return err
	}
	return named(ctx, g)
}

// ownHistory is own for what concerns all replicas, whichever Redis they use: how far history went.
// Options.Naming is told all the same.
func ownHistory(ctx context.Context, g *Store) error {
	if err := lately(ctx, g); err != nil {
		return err
	}
	_, _ = tell(g)
	return nil
}

// lately is look, unless that was a moment ago.
func lately(ctx context.Context, g *Store) error {
	g.mu.Lock()
	at := g.looked
	g.mu.Unlock()
	if !at.IsZero() && g.opts.Clock.Since(at) < lookEvery {
		return nil
	}
	return look(ctx, g)
}

// ownerKey is the Redis key that names the installation.
func ownerKey(g *Store) string { return "{" + g.opts.KeyPrefix + "adm-installation}" }

// homeKey is the Redis key that names the namespace of the operators, in one slot of a Redis
// Cluster with the installation's.
func homeKey(g *Store) string { return ownerKey(g) + ":home" }

// nameKey is the Redis key with the name of this Redis, in one slot with the installation's.
func nameKey(g *Store) string { return ownerKey(g) + ":name" }

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
