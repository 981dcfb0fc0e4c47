// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// takeIdle takes what a ticket has for a while without that status says so. A run that holds is
// marked first: who was granted it before can then not write it any more. A place cannot be
// written, so it just goes; if it has become a hold, that stays.
func (c *Controller) takeIdle(ctx context.Context, v *view, f findings) error {
	now, seen := c.clock.Now(), map[string]time.Time{}
	lasts := func(ticket string) bool { return resyncs.Lasts(c.idle, seen, ticket, now) >= idleTime }
	var failed error
	for _, ticket := range f.idle {
		if lasts(ticket) {
			delete(seen, ticket) // what it has next is looked at anew
			failed = errors.Join(failed, c.takeBack(ctx, v.runs[uidOf(ticket)], ticket))
		}
	}
	var places []store.Dropping
	for _, ticket := range f.places {
		if lasts(ticket) {
			delete(seen, ticket)
			places = append(places, store.Dropping{Ticket: ticket, Seen: v.runs[uidOf(ticket)].version})
		}
	}
	c.idle = seen
	return errors.Join(failed, c.dropAll(ctx, places))
}

// takeBack takes a hold, and wakes who is next before it wakes the run: that would have the lock
// again. A run that may not be marked has what it has. That is no error: all locks would be looked
// at again and again.
func (c *Controller) takeBack(ctx context.Context, run fact, ticket string) error {
	marked, err := c.mark(ctx, run, c.newID())
	if resyncs.Refused(err) {
		c.log.Info("A run may not be changed, so it keeps locks that its status does not name", "run", run.name.String(), "ticket", ticket, "cause", err.Error())
		return nil
	}
	if err != nil || marked == nil {
		return err // also if it is gone: that is for the next resync
	}
	p, _ := marked.part(ticket)
	if len(p.Holds) > 0 && !p.Over {
		return nil
	}
	err = c.dropAll(ctx, []store.Dropping{{Ticket: ticket, Seen: marked.version}})
	if p.Waits {
		c.wake(run.name) // it takes a place again
	}
	return err
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
