// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"maps"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// ended is what resyncs remember of rings.
type ended struct {
	refused    map[string]refusal // by ticket
	passedOver int                // resyncs in a row that left rings that wait for others
}

// refusal is that of a step which waited for itself.
type refusal struct {
	ticket store.Ticket
	at     time.Time
}

// ending are tickets that were refused, and whose runs may not have done what follows: those that
// have not heard of it by the snapshots, and those of the time between two resyncs. Their locks are
// held until then, and by the rule for scopes all of their tree seems to wait for each other.
func (c *Controller) ending(all ...store.LocksSnapshot) (tickets []store.Ticket) {
	if c.ended.refused == nil {
		c.ended.refused = map[string]refusal{}
	}
	maps.DeleteFunc(c.ended.refused, func(_ string, r refusal) bool {
		age := c.clock.Since(r.at)
		return age < 0 || age >= resyncPause
	})
	for _, r := range c.ended.refused {
		tickets = append(tickets, r.ticket)
	}
	for _, s := range all {
		tickets = append(tickets, refusedIn(s)...)
	}
	return tickets
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
