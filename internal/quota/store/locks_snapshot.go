// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
)

// LocksSnapshot is everything there is of locks.
type LocksSnapshot struct {
	Holds   []Holding
	Waiters []Waiter // in order
}

// errLostMeanwhile is why portions of a snapshot do not belong together.
var errLostMeanwhile = errors.New("the data was lost and rebuilt while it was read")

// SnapshotLocks reads everything there is of locks. It asks in portions, since all of Redis waits
// for a script: so it is not of one moment. Whoever keeps a place, or a hold, while it is read is
// in it. Who goes from waiting to held meanwhile is in it, perhaps as both. Who gives up what it
// has and waits for other locks may be in it as neither: it will ask again.
//
// Errors: as TakeLocks.
func (g *Store) SnapshotLocks(ctx context.Context) (LocksSnapshot, error) {
	p := portions{holds: map[string]Holding{}, waiters: map[string]Waiter{}}
	for at := "p0"; at != ""; {
		got, err := g.ask(ctx, g.scripts.locksSnapshot, locksKey, g.lockKeys(), at)
		if err != nil {
			return LocksSnapshot{}, err
		}
		g.learn(g.lockKeys()[0], got)
		g.readAtOnce(got.text(4))
		if err := p.add(got); err != nil {
			return LocksSnapshot{}, g.unavailable(locksKey, err)
		}
		at = got.text(3)
	}
	return p.snapshot(), nil
}

// readAtOnce tells the log, once, that what there is of locks is not read in portions, and why.
func (g *Store) readAtOnce(why string) {
	if why == "" {
		return
	}
	g.scanless.Do(func() {
		g.opts.Log.Info("All locks across runs are read at once: all of Redis waits for that. Its user needs +hscan", "cause", why)
	})
}

// portions are put together by ticket: Redis may tell of one twice.
type portions struct {
	term    string
	holds   map[string]Holding
	waiters map[string]Waiter
}

func (p *portions) add(got reply) error {
	if p.term != "" && p.term != got.text(0) {
		return errLostMeanwhile
	}
	p.term = got.text(0)
	for all := got.list(1); len(all) > 1; all = all[2:] {
		h, err := parseHolding(all.text(0), all.text(1))
		if err != nil {
			return err
		}
		p.holds[h.Ticket.ID] = h
	}
	for all := got.list(2); len(all) > 1; all = all[2:] {
		w, err := parseWaiter(all.text(0), all.text(1))
		if err != nil {
			return err
		}
		p.waiters[w.Ticket.ID] = w
	}
	return nil
}

func (p *portions) snapshot() LocksSnapshot {
	return LocksSnapshot{
		Holds: slices.SortedFunc(maps.Values(p.holds), func(a, b Holding) int {
			return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Ticket.ID, b.Ticket.ID))
		}),
		Waiters: slices.SortedFunc(maps.Values(p.waiters), func(a, b Waiter) int {
			return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Ticket.ID, b.Ticket.ID))
		}),
	}
}

// Lasting is what of a snapshot is in a later one, too: so it was all there at one moment, that
// between the two. A hold is the same by its fence. A wait is by its place in the queues and its
// wants, if it was refused in neither.
func (s LocksSnapshot) Lasting(later LocksSnapshot) LocksSnapshot {
	fences, waits := map[string]int64{}, map[string]Waiter{}
	for _, h := range later.Holds {
		fences[h.Ticket.ID] = h.Fence
	}
	for _, w := range later.Waiters {
		waits[w.Ticket.ID] = w
	}
	var part LocksSnapshot
	for _, h := range s.Holds {
		if fence, held := fences[h.Ticket.ID]; held && fence == h.Fence {
			part.Holds = append(part.Holds, h)
		}
	}
	for _, w := range s.Waiters {
		if l, waited := waits[w.Ticket.ID]; waited && w.lasts(l) {
			part.Waiters = append(part.Waiters, w)
		}
	}
	return part
}

func (w Waiter) lasts(later Waiter) bool {
	return w.order == later.order && w.Refused == "" && later.Refused == "" && slices.Equal(w.Wants, later.Wants)
}
