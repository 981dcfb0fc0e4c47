// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
)

// Kinds of drift, as labels.
const (
	driftLeaked     = "leaked"      // a slot without an admitted run
	driftMissing    = "missing"     // an admitted run without a slot
	driftStalePlace = "stale_place" // a place in the queue of a run that does not wait
)

// Release takes from runs whatever they have: slot, place in the queue, reservation. It returns who
// is next, for the caller to wake: runs in the queue that can be admitted now, the first 32 of them
// at most (the window). Each that is admitted then names one more (Answer.Next), so all who can be
// are woken, and a call names few. One that is woken and never asks keeps its place in the window:
// a resync wakes whoever is behind 32 of those. Idempotent.
//
// Errors: *UnavailableError, *RebuildingError, ErrInvalidRequest. After one of the first two it
// must be repeated: a rebuild that is under way may bring the slot back.
func (g *Store) Release(ctx context.Context, k Key, l Limits, uids ...string) (next []Next, err error) {
	next, _, err = g.free(ctx, k, l, uids)
	return next, err
}

// Next is Release without a run: whom to wake after a limit was raised, or after somebody
// else changed something.
//
// Errors: as Release.
func (g *Store) Next(ctx context.Context, k Key, l Limits) (next []Next, err error) {
	next, _, err = g.free(ctx, k, l, nil)
	return next, err
}

// Drop is Release for runs that somehow kept what they had: those that are found, by a live read,
// to be over or gone. What it frees is counted as drift, leaked and stale_place.
//
// Errors: as Release; some may have been dropped, and who is next by that is returned.
func (g *Store) Drop(ctx context.Context, k Key, l Limits, uids []string) (next []Next, err error) {
	next, freed, err := g.free(ctx, k, l, uids)
	g.opts.Metrics.drifted(driftLeaked, freed.slots)
	g.opts.Metrics.drifted(driftStalePlace, freed.places)
	return next, err
}

// placeOnly is before the UID of a run of which free.lua, or pool_free.lua, takes the place alone.
const placeOnly = "~"

// DropPlace is Drop of the place in the queue of a run alone, for tenants and pools: a slot, also
// one that the run is granted just before, and a reservation stay.
//
// Errors: as Release.
func DropPlace(ctx context.Context, g *Store, k Key, l Limits, uid string) (next []Next, err error) {
	free := g.free
	if k.Pool() {
		free = g.Pools().freeShared
	}
	next, freed, err := free(ctx, k, l, []string{placeOnly + uid})
	g.opts.Metrics.drifted(driftStalePlace, freed.places)
	return next, err
}

// freed counts what runs had.
type freed struct{ slots, places int }

// free asks in portions. Who is next is what the last one says: a portion may take what one before
// it named.
func (g *Store) free(ctx context.Context, k Key, l Limits, uids []string) (next []Next, had freed, err error) {
	if err := errors.Join(k.check(), checkUIDs(uids...)); err != nil {
		return nil, freed{}, err
	}
	err = inPortions(uids, func(some []string, _ bool) error {
		got, err := g.ask(ctx, g.scripts.free, k, g.keys(k), append([]any{l.Max, g.window}, anys(some)...)...)
		if err != nil {
			return err
		}
		g.learn(g.keys(k)[0], got)
		next = nextOf(got[min(6, len(got)):])
		had.slots, had.places = had.slots+got.number(4), had.places+got.number(5)
		return nil
	})
	return next, had, err
}

// inPortions calls f for all, in order, with a bounded number of them at a time, until it fails:
// once if there are none. last says that no more come.
func inPortions[T any](all []T, f func(some []T, last bool) error) error {
	for {
		some := all[:min(len(all), mostUIDs)]
		all = all[len(some):]
		if err := f(some, len(all) == 0); err != nil || len(all) == 0 {
			return err
		}
	}
}
