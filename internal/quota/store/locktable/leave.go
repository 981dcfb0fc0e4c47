// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"maps"
	"slices"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Refuse is store.Store.RefuseLocks.
func (t *Table) Refuse(ticket, why string) {
	if p, ok := t.Places[ticket]; ok && p.Refused == "" {
		p.Refused, p.Wants = why, nil
		t.Places[ticket] = p
	}
}

// Drop is store.Store.DropLocks. Who is superseded stays so until it is over. Not ok: it is closed.
func (t *Table) Drop(all ...store.Dropping) (next []store.Wake, holds int, ok bool) {
	if !t.Open {
		return nil, 0, false
	}
	touched := map[string]bool{}
	for _, d := range all {
		if h, held := t.Holds[d.Ticket]; held && (d.Seen == "" || number(h.Ticket.Version) < number(d.Seen)) {
			delete(t.Holds, d.Ticket)
			holds++
			for _, l := range h.Locks {
				touched[l.Name] = true
			}
		}
		if p, waits := t.Places[d.Ticket]; waits && leaves(p, d) {
			delete(t.Places, d.Ticket)
			for _, w := range p.Wants {
				touched[w.Name] = true
			}
		}
	}
	return t.wake(slices.Sorted(maps.Keys(touched))), holds, true
}

// leaves says whether a place goes: who was superseded keeps that word until it is over.
func leaves(p Place, d store.Dropping) bool {
	return p.Refused != store.LocksSuperseded || d.Seen == ""
}
