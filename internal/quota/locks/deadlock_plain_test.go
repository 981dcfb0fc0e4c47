// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// What follows says what deadlocked has to find, by looking at all waits again for each hold: the
// code before it was made to cost no more than what there is.

// plainlyDeadlocked are the tickets of those that are refused, with spaces between them.
func plainlyDeadlocked(s store.LocksSnapshot, limit limitOf, needs plainNeeds) string {
	held := slices.DeleteFunc(slices.Clone(s.Holds), func(h store.Holding) bool { // they end by themselves
		return h.IsReserved() || slices.ContainsFunc(s.Waiters, func(w store.Waiter) bool { return w.Refused != "" && needs(h.Ticket, w.Ticket) })
	})
	w := plainWaits{used: usedOf(held), limit: limit, needs: needs, held: held, byTree: map[string][]store.Waiter{}}
	for _, one := range s.Waiters {
		if one.Refused == "" {
			w.line = append(w.line, one)
			w.byTree[one.Ticket.Tree] = append(w.byTree[one.Ticket.Tree], one)
			w.ordered = w.ordered || slices.ContainsFunc(one.Wants, func(l store.Want) bool { return l.Ordered })
		}
	}
	for more := len(w.line) > 0; more; {
		more = w.ends()
	}
	ids := w.youngest()
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// plainNeeds says whether what holds its locks ends only after one that waits went on.
type plainNeeds func(held, waits store.Ticket) bool

// plainWaits are what is held and waited for.
type plainWaits struct {
	used   map[string]int
	limit  limitOf
	needs  plainNeeds
	held   []store.Holding
	line   []store.Waiter            // in order
	byTree map[string][]store.Waiter // by tree of runs: nothing waits for another tree but by a lock

	ordered bool // an Ordered lock is waited for
}

// ends lets those end that need nothing that waits in vain, and says whether any did.
func (w *plainWaits) ends() bool {
	before, behind := len(w.held), map[string]bool{}
	if w.ordered {
		behind = w.blocked()
	}
	w.held = slices.DeleteFunc(w.held, func(h store.Holding) bool {
		waits := func(one store.Waiter) bool { return w.lacks(one) || behind[one.Ticket.ID] }
		if slices.ContainsFunc(w.byTree[h.Ticket.Tree], func(one store.Waiter) bool { return waits(one) && w.needs(h.Ticket, one.Ticket) }) {
			return false
		}
		for _, l := range h.Locks {
			w.used[l.Name] -= l.Permits
		}
		return true
	})
	return len(w.held) < before
}

// blocked are those that wait for what is held, or, in the line of an Ordered lock, behind one that
// is blocked.
func (w *plainWaits) blocked() map[string]bool {
	all, stands := map[string]bool{}, map[string]bool{} // by ticket, and by lock whose line stands
	for _, one := range w.line {
		if !w.lacks(one) && !slices.ContainsFunc(one.Wants, func(l store.Want) bool { return l.Ordered && stands[l.Name] }) {
			continue
		}
		all[one.Ticket.ID] = true
		if slices.ContainsFunc(one.Wants, w.never) {
			continue // it is in no line
		}
		for _, l := range one.Wants {
			stands[l.Name] = true
		}
	}
	return all
}

// lacks says whether one waits for what is held.
func (w *plainWaits) lacks(one store.Waiter) bool {
	return slices.ContainsFunc(one.Wants, w.busy)
}

// busy says whether a lock is held by so many that it has no room.
func (w *plainWaits) busy(l store.Want) bool {
	n, ok := w.limit(l.Name)
	return ok && l.Permits <= n && w.used[l.Name]+l.Permits > n
}

// never says whether more is asked for than there is.
func (w *plainWaits) never(l store.Want) bool {
	n, ok := w.limit(l.Name)
	return ok && l.Permits > n
}

// youngest are those that wait in vain, and are needed, and wait for themselves: each that is the
// youngest of those that it waits for, all of which wait for it, or are in no ring.
func (w *plainWaits) youngest() (ids []string) {
	blocked := w.blocked()
	behind := w.edges(blocked)
	var all []store.Waiter
	for _, h := range w.held {
		for _, one := range w.byTree[h.Ticket.Tree] {
			if blocked[one.Ticket.ID] && w.needs(h.Ticket, one.Ticket) {
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b store.Waiter) int {
		return cmp.Or(b.Ticket.Arrival().Compare(a.Ticket.Arrival()), cmp.Compare(b.Ticket.ID, a.Ticket.ID))
	})
	had := map[string]bool{}
	for _, one := range all { // the youngest come first
		id := one.Ticket.ID
		needed := plainlyReached(id, behind)
		if had[id] || !needed[id] {
			continue
		}
		last := true
		for other := range needed {
			ways := plainlyReached(other, behind)
			had[other] = had[other] || ways[id]
			last = last && (ways[id] || !ways[other])
		}
		if last {
			ids = append(ids, id)
		}
	}
	return ids
}

// plainlyReached are those for whom one waits, and those for whom they do, and so on.
func plainlyReached(id string, behind map[string][]string) map[string]bool {
	seen := map[string]bool{}
	for next := slices.Clone(behind[id]); len(next) > 0; {
		last := next[len(next)-1]
		next = next[:len(next)-1]
		if !seen[last] {
			seen[last] = true
			next = append(next, behind[last]...)
		}
	}
	return seen
}

// edges are for whom of those that are blocked each of them waits: who has to go on before what it
// wants is free, and who stands before it in the line of an Ordered lock.
func (w *plainWaits) edges(blocked map[string]bool) map[string][]string {
	holds := w.keepers(blocked)
	behind, before := map[string][]string{}, map[string]string{} // before: by lock, the last in line
	for _, one := range w.line {
		id := one.Ticket.ID
		if !blocked[id] {
			continue
		}
		for _, l := range one.Wants {
			if w.busy(l) {
				behind[id] = append(behind[id], holds[l.Name]...)
			}
			if last := before[l.Name]; l.Ordered && last != "" {
				behind[id] = append(behind[id], last)
			}
		}
		if slices.ContainsFunc(one.Wants, w.never) {
			continue // it is in no line
		}
		for _, l := range one.Wants {
			before[l.Name] = id
		}
	}
	return behind
}

// keepers are, by lock, those of the ones that are blocked who have to go on before it is free.
func (w *plainWaits) keepers(blocked map[string]bool) map[string][]string {
	of := map[string][]string{}
	for _, h := range w.held {
		for _, one := range w.byTree[h.Ticket.Tree] {
			if !blocked[one.Ticket.ID] || !w.needs(h.Ticket, one.Ticket) {
				continue
			}
			for _, l := range h.Locks {
				of[l.Name] = append(of[l.Name], one.Ticket.ID)
			}
		}
	}
	return of
}

// plainlyNeeds is plainNeeds by the runs that there are. A run ends after all that is below it, so
// after each wait of its tree. A step ends after its items, or its child run, and else by itself,
// as an item does: other steps of the run may wait meanwhile.
func (v *view) plainlyNeeds(held, waits store.Ticket) bool {
	if held.Tree != waits.Tree {
		return false
	}
	_, step, isStep := strings.Cut(held.ID, "/")
	if !isStep || strings.HasPrefix(waits.ID, held.ID+"/") {
		return true
	}
	child := v.runs[uidOf(held.ID)].childOf(step)
	run := waits.Run
	for level := 0; level < maxLevels && run != "" && child != ""; level++ {
		if run == child {
			return true
		}
		run = v.parents[run]
	}
	return false
}
