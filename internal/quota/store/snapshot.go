// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Snapshot is everything that the quota has of a key, to compare with the run objects.
type Snapshot struct {
	// Slots are sorted by UID.
	Slots []Slot
	// Line is in order; the first is the next to be admitted. Creation times are in seconds.
	Queue []Run
	// Reserved is sorted by what ends first.
	Reserved []Reservation
}

// Slot is a slot that a run has.
type Slot struct {
	// UID is the run's.
	UID string
	// Age is how long ago it was taken, or restored, by the clock of Redis.
	Age time.Duration
	// Tenant is the run's, in a pool; else empty.
	Tenant string
}

// Reservation is a slot that is kept for a run that does not exist yet.
type Reservation struct {
	// UID is the run's.
	UID string
	// Left is how much longer it stands.
	Left time.Duration
}

// Snapshot reads everything that the quota has of a key, at one moment.
//
// Errors: *UnavailableError, *RebuildingError, ErrInvalidRequest.
func (g *Store) Snapshot(ctx context.Context, k Key) (Snapshot, error) {
	if err := k.check(); err != nil {
		return Snapshot{}, err
	}
	got, err := g.ask(ctx, g.scripts.snapshot, k, g.keys(k))
	if err != nil {
		return Snapshot{}, err
	}
	g.learn(g.keys(k)[0], got)
	var b Snapshot
	now := got.number(4)
	for slots := got.list(5); len(slots) > 1; slots = slots[2:] {
		if uid := slots.text(0); !strings.HasPrefix(uid, ":") {
			b.Slots = append(b.Slots, Slot{UID: uid, Age: millis(max(0, now-slots.number(1)))})
		}
	}
	slices.SortFunc(b.Slots, func(x, y Slot) int { return cmp.Compare(x.UID, y.UID) })
	for _, m := range got.list(6).texts(0) {
		run, err := parseMember(m)
		if err != nil {
			return Snapshot{}, g.unavailable(k, err)
		}
		b.Queue = append(b.Queue, run)
	}
	b.Reserved = reservationsOf(got.list(7), now)
	return b, nil
}

// Show exports who has slots and who waits, as snapshots of all keys say. It is for the process
// that makes resyncs: what others last heard of a tenant would stay. With nil nothing is exported:
// another process does.
func (g *Store) Show(all map[Key]Snapshot) {
	now := map[Key]standing{}
	add := func(at Key, tenant string, slots, waiting int) {
		if tenant != "" {
			at.Tenant = tenant // of a pool
		}
		s := now[at]
		now[at] = standing{s.slots + slots, s.waiting + waiting}
	}
	for at, b := range all {
		for _, s := range b.Slots {
			add(at, s.Tenant, 1, 0)
		}
		for _, r := range b.Queue {
			add(at, r.Tenant, 0, 1)
		}
	}
	g.opts.Metrics.show(now)
}

func reservationsOf(r reply, now int) []Reservation {
	var all []Reservation
	for ; len(r) > 1; r = r[2:] {
		all = append(all, Reservation{UID: r.text(0), Left: millis(max(0, r.number(1)-now))})
	}
	return all
}

// Restore gives slots to runs that are admitted, as their objects say, and have none, whatever the
// limit. Those that had none are counted as drift, missing.
//
// Errors: *UnavailableError, *RebuildingError, ErrInvalidRequest.
func (g *Store) Restore(ctx context.Context, k Key, uids []string) error {
	if err := errors.Join(k.check(), checkUIDs(uids...)); err != nil {
		return err
	}
	added, err := g.restoreAll(ctx, k, "", uids)
	g.opts.Metrics.drifted(driftMissing, added)
	return err
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }
