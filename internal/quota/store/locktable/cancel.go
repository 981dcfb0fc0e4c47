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
// they free is of those before it first, but for those that end.
func (t *Table) cancels(p Place) []store.Cancel {
	all, then := t.oldest(p)
	promised := map[string]int{}
	then.runnable(names(p.Wants), current(p), promised, func(o Place) bool { return before(o, p) }, func(Place) {})
	waits := func(w store.Want) bool {
		return then.lacks(w, promised) || then.tooSoon(w, promised["#"+w.Name]) || w.Ordered && then.behind(w.Name, p)
	}
	if slices.ContainsFunc(p.Wants, waits) {
		return nil
	}
	return all
}

// oldest are, of each lock that has its oldest holders end, as many as it takes to make room; then
// is the table after their ends.
func (t *Table) oldest(p Place) (all []store.Cancel, then *Table) {
	then = t.Clone()
	for _, w := range p.Wants {
		for _, h := range t.holders(w.Name) {
			_, goes := then.Holds[h.Ticket.ID]
			if w.OnBusy != store.CancelOldest || !then.lacks(w, nil) || !goes || spared(h, p.Ticket) {
				continue
			}
			all = append(all, store.Cancel{Wake: store.Wake{Ticket: h.Ticket.ID, Run: h.Ticket.Run}, Lock: w.Name})
			then.end(h.Ticket)
		}
	}
	return all, then
}

// end takes away what a run of this ticket has, and, where it is at the top, all its tree.
func (t *Table) end(k store.Ticket) {
	ends := func(o store.Ticket) bool { return uidOf(o) == uidOf(k) || k.Tree == k.Run && o.Tree == k.Tree }
	maps.DeleteFunc(t.Holds, func(_ string, h store.Holding) bool { return ends(h.Ticket) })
	maps.DeleteFunc(t.Places, func(_ string, p Place) bool { return ends(p.Ticket) })
}

// uidOf is the UID of the run of a ticket.
func uidOf(k store.Ticket) string {
	uid, _, _ := strings.Cut(k.ID, "/")
	return uid
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
	return uidOf(h.Ticket) == uidOf(k) || h.Ticket.Tree == k.Tree || h.IsReserved()
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
