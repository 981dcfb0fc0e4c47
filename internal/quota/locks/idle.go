// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// refusalTime is how long a run that could not be marked is left alone: each try is some requests,
// and all locks wait for the resync that makes them. A run that was written since needs no mark.
const refusalTime = 2 * time.Minute

// takeIdle takes what a ticket has for a while without that status says so. A run that holds is
// marked first: who was granted it before can then not write it any more. A place cannot be
// written, so it just goes; if it has become a hold, that stays.
func (c *Controller) takeIdle(ctx context.Context, v *view, f findings) error {
	now, seen := c.clock.Now(), map[string]time.Time{}
	maps.DeleteFunc(c.refusals, func(_ types.UID, at time.Time) bool { return now.Sub(at).Abs() >= refusalTime })
	lasts := func(ticket string) bool { return resyncs.Lasts(c.idle, seen, ticket, now) >= idleTime }
	ripe := map[types.UID][]string{}
	for _, ticket := range f.idle {
		if _, refused := c.refusals[uidOf(ticket)]; lasts(ticket) && !refused {
			delete(seen, ticket) // what it has next is looked at anew
			ripe[uidOf(ticket)] = append(ripe[uidOf(ticket)], ticket)
		}
	}
	var places []store.Dropping
	for _, ticket := range f.places {
		if lasts(ticket) {
			delete(seen, ticket)
			places = append(places, placeOf(v.runs[uidOf(ticket)], ticket))
		}
	}
	c.idle = seen
	return errors.Join(c.takeBack(ctx, v, ripe), c.dropAll(ctx, places))
}

// placeOf is the place of a ticket that does not wait by status. What it may have become is no
// hold: nobody can write that any more. Of a run that this version does not read nobody knows.
func placeOf(run fact, ticket string) store.Dropping {
	if run.unread() {
		return store.Dropping{Ticket: ticket, Seen: store.PlaceOnly}
	}
	return store.Dropping{Ticket: ticket, Seen: run.version}
}

// taking is what one resync takes from runs.
type taking struct {
	*Controller
	mu    sync.Mutex // guards refusals of the Controller, too
	drops []store.Dropping
	wait  []types.NamespacedName // runs that are to ask again
}

// takeBack takes holds from their runs, with one mark of each, and wakes who is next before it
// wakes those: they would have the locks again.
func (c *Controller) takeBack(ctx context.Context, v *view, ripe map[types.UID][]string) error {
	t := taking{Controller: c}
	var group errgroup.Group
	group.SetLimit(markParallel)
	for uid, tickets := range ripe {
		run := v.runs[uid]
		group.Go(func() error { return t.from(ctx, run, tickets) })
	}
	failed := group.Wait()
	failed = errors.Join(failed, c.dropAll(ctx, t.drops))
	for _, run := range t.wait {
		c.wake(run)
	}
	return failed
}

// from marks a run, and notes what is to be taken from it. One that may not be marked has what it
// has. That is no error: all locks would be looked at again and again.
func (t *taking) from(ctx context.Context, run fact, tickets []string) error {
	marked, err := t.mark(ctx, run, t.newID())
	t.mu.Lock()
	defer t.mu.Unlock()
	if resyncs.Unmarked(err) {
		t.refusals[run.uid] = t.clock.Now()
		t.log.Info("A run may not be changed, so it keeps locks that its status does not name", "run", run.name.String(), "tickets", tickets, "cause", err.Error())
		return nil
	}
	if err != nil || marked == nil || marked.unread() {
		return err // also if it is gone: that is for the next resync
	}
	waits := false
	for _, ticket := range tickets {
		p, _ := marked.part(ticket)
		if len(p.Holds) == 0 || p.Over {
			t.drops = append(t.drops, store.Dropping{Ticket: ticket, Seen: marked.version})
			waits = waits || p.Waits
		}
	}
	if waits {
		t.wait = append(t.wait, run.name) // it takes a place again
	}
	return nil
}

// dropAll drops what runs left, and wakes who is next.
func (c *Controller) dropAll(ctx context.Context, all []store.Dropping) error {
	if len(all) == 0 {
		return nil
	}
	dropped, err := c.store.DropLocks(ctx, all...)
	if err != nil {
		err = fmt.Errorf("drop what runs left: %w", err)
	}
	c.metrics.leaked.Add(float64(dropped.Holds)) // after an error, too: some were dropped
	return errors.Join(err, c.wakeAll(ctx, dropped.Wake))
}
