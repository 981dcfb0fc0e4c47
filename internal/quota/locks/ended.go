// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// unheardTime is for how long a step that was refused counts as what ends while its run does
	// not hear of it: its replica may be behind. A run that is frozen, or suspended, never does.
	unheardTime = 5 * time.Minute
	// hearTime is how long a run usually takes to hear of a refusal, at most.
	hearTime = 5 * time.Second
)

// ended is what resyncs remember of rings.
type ended struct {
	refused    map[string]refusal // by ticket
	passedOver int                // resyncs in a row that left rings that wait for others
}

// refusal is that of a step.
type refusal struct {
	ticket store.Ticket
	at     time.Time // when it was made by this process, or first seen by it
}

// ending are tickets that were refused, and whose runs may not have done what follows: those that
// have not heard of it by the snapshots, for unheardTime, and those of the time between two
// resyncs, unless their runs go on. Their locks are held until then, and by the rule for scopes all
// of their tree seems to wait for each other.
func (c *Controller) ending(v *view, all ...store.LocksSnapshot) (tickets []store.Ticket) {
	now := c.clock.Now()
	unheard := c.unheard(now, all)
	for id, r := range c.ended.refused {
		age := now.Sub(r.at)
		switch {
		case unheard[id] && age >= unheardTime: // it is kept, so that its time does not begin anew
		case !unheard[id] && (age < 0 || age >= resyncPause || v.goesOn(r.ticket)):
			delete(c.ended.refused, id)
		default:
			tickets = append(tickets, r.ticket)
		}
	}
	return tickets
}

// unheard are the tickets that were refused and have not heard of it by the snapshots. Those that
// are new are noted.
func (c *Controller) unheard(now time.Time, all []store.LocksSnapshot) map[string]bool {
	if c.ended.refused == nil {
		c.ended.refused = map[string]refusal{}
	}
	tickets := map[string]bool{}
	for _, s := range all {
		for _, ticket := range refusedIn(s) {
			tickets[ticket.ID] = true
			if r, known := c.ended.refused[ticket.ID]; !known || now.Before(r.at) { // the clock was set back
				c.ended.refused[ticket.ID] = refusal{ticket, now}
			}
		}
	}
	return tickets
}

// goesOn says whether the run of a step that was refused knows of that, and goes on all the same:
// others of it wait still. A status that ends the run ends their waits, too.
func (v *view) goesOn(refused store.Ticket) bool {
	run := v.runs[uidOf(refused.ID)]
	if p, _ := run.part(refused.ID); !p.Over || run.shutdown {
		return false
	}
	for _, p := range run.tickets {
		if p.Waits {
			return true
		}
	}
	return false
}

// lookSoon asks for another resync where one refuses nobody, but what was refused a moment ago
// hides a ring: as soon as its run goes on that is to be ended. Errors: that ctx ended.
func (c *Controller) lookSoon(ctx context.Context, v *view, s store.LocksSnapshot) error {
	soon := false
	for _, r := range c.ended.refused {
		age := c.clock.Since(r.at)
		soon = soon || age >= 0 && age < hearTime
	}
	if !soon {
		return nil
	}
	all, _, err := deadlocked(ctx, s, v.limit, v, nil, true)
	if len(all) > 0 {
		c.kicks.Kick()
	}
	return err
}

// refusedIn are the tickets of a snapshot that were refused.
func refusedIn(s store.LocksSnapshot) (tickets []store.Ticket) {
	for i := range s.Waiters {
		if s.Waiters[i].Refused != "" {
			tickets = append(tickets, s.Waiters[i].Ticket)
		}
	}
	return tickets
}
