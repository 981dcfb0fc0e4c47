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

// Release takes from a run whatever it has: slot, place in the queue, reservation. It returns all
// runs in the queue that can be admitted now, for the caller to wake: at most as many as slots are
// free. Idempotent.
//
// Errors: *UnavailableError, *RebuildingError, ErrInvalidRequest. After one of the first two it
// must be repeated: a rebuild that is under way may bring the slot back.
func (g *Store) Release(ctx context.Context, k Key, l Limits, uid string) (next []Next, err error) {
	next, _, err = g.free(ctx, k, l, uid)
	return next, err
}

// Next is Release without a run: whom to wake after a limit was raised, or after somebody
// else changed something.
//
// Errors: as Release.
func (g *Store) Next(ctx context.Context, k Key, l Limits) (next []Next, err error) {
	next, _, err = g.free(ctx, k, l)
	return next, err
}

// Drop is Release for runs that somehow kept what they had: those that are found, by a live read,
// to be over or gone. What it frees is counted as drift, leaked and stale_place.
//
// Errors: as Release.
func (g *Store) Drop(ctx context.Context, k Key, l Limits, uids []string) (next []Next, err error) {
	next, freed, err := g.free(ctx, k, l, uids...)
	g.opts.Metrics.drifted(driftLeaked, freed.slots)
	g.opts.Metrics.drifted(driftStalePlace, freed.places)
	return next, err
}

// freed counts what runs had.
type freed struct{ slots, places int }

func (g *Store) free(ctx context.Context, k Key, l Limits, uids ...string) ([]Next, freed, error) {
	if err := errors.Join(k.check(), checkUIDs(uids...)); err != nil {
		return nil, freed{}, err
	}
	got, err := g.ask(ctx, g.scripts.free, k, g.keys(k), append([]any{l.Max}, anys(uids)...)...)
	if err != nil {
		return nil, freed{}, err
	}
	g.learn(g.keys(k)[0], got)
	return nextOf(got[min(6, len(got)):]), freed{slots: got.number(4), places: got.number(5)}, nil
}
