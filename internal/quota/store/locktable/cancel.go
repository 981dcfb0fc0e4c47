// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// cancels are whose ends let one that waits begin; none where it could not begin even then. What
// they free is of those before it first.
func (t *Table) cancels(p Place) []store.Cancel {
	all, promised := t.oldest(p)
	t.runnable(names(p.Wants), current(p), promised, func(o Place) bool { return before(o, p) }, func(Place) {})
	waits := func(w store.Want) bool {
		return t.lacks(w, promised) || t.tooSoon(w, promised["#"+w.Name]) || w.Ordered && t.behind(w.Name, p)
	}
	if slices.ContainsFunc(p.Wants, waits) {
		return nil
	}
	return all
}

// oldest are, of each lock that has its oldest holders end, as many as it takes to make room. What
// they free of all locks is promised as less than nothing.
func (t *Table) oldest(p Place) (all []store.Cancel, promised map[string]int) {
	chosen, promised := map[string]bool{}, map[string]int{}
	for _, w := range p.Wants {
		for _, h := range t.holders(w.Name) {
			if w.OnBusy != store.CancelOldest || !t.lacks(w, promised) || chosen[h.Ticket.ID] || spared(h, p.Ticket) {
				continue
			}
			chosen[h.Ticket.ID] = true
			all = append(all, store.Cancel{Wake: store.Wake{Ticket: h.Ticket.ID, Run: h.Ticket.Run}, Lock: w.Name})
			for _, l := range h.Locks {
				promised[l.Name] -= l.Permits
			}
		}
	}
	return all, promised
}

// lacks says whether a lock has no room, beside what is promised.
func (t *Table) lacks(w store.Want, promised map[string]int) bool {
	return t.Used(w.Name)+promised[w.Name]+w.Permits > w.Limit
}

// holders are those that hold a lock, the oldest first.
func (t *Table) holders(lock string) []store.Holding {
	all := slices.SortedFunc(maps.Values(t.Holds), func(a, b store.Holding) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Ticket.ID, b.Ticket.ID))
	})
	return slices.DeleteFunc(all, func(h store.Holding) bool { return !slices.Contains(locksOf(h.Locks), lock) })
}

// spared says whether a hold is not to end for a ticket: it is of the same run, or tree of runs, or
// it is reserved.
func spared(h store.Holding, k store.Ticket) bool {
	ours, _, _ := strings.Cut(k.ID, "/")
	theirs, _, _ := strings.Cut(h.Ticket.ID, "/")
	return ours == theirs || h.Ticket.Tree == k.Tree || h.IsReserved()
}

// behind says whether anybody is before one in the line of a lock.
func (t *Table) behind(lock string, p Place) bool {
	return slices.ContainsFunc(t.line([]string{lock}), func(o Place) bool { return before(o, p) })
}

// current are the wants of one that asks, by lock.
func current(p Place) map[string]store.Want {
	all := map[string]store.Want{}
	for _, w := range p.Wants {
		all[w.Name] = w
	}
	return all
}
