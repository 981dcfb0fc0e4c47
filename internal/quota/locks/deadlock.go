// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// deadlocked are the waits that have to end for others to go on; none: all can go on. Locks that
// are taken together are never part of a deadlock. But what holds its locks may wait for others:
// see scope.
//
// What needs nothing that waits, or only what could be had, ends some day, and what it holds is
// free then. What is left when no more ends like that waits for itself, or behind what does. The
// youngest wait of a ring is refused: who waits behind one goes on then. Who is in the line of an
// Ordered lock behind one that waits in vain does so, too, though the lock may be free.
//
// There may be many rings, of tenants that have nothing to do with each other: none waits for the
// end of another's. Of those that share what they wait for one is refused at a time: more may go on
// then. A ring that waits for another one, too, may end with that. With all its youngest is refused
// all the same; else left says that there is such a one. What a wait is inside of that was refused
// a moment ago, one of ending, is about to end, or to go on.
//
// What asks for more permits than there are waits for somebody who raises the limit: that is no
// deadlock.
//
// The cost is that of what is held and waited for, once: users choose how many wait for how much.
//
// Errors: that ctx ended.
func deadlocked(ctx context.Context, s store.LocksSnapshot, limit limitOf, v *view, ending []store.Ticket, all bool) (refuse []*store.Waiter, left bool, err error) {
	w := &waits{limit: limit, locks: map[string]*lock{}, parts: map[scope]*part{}, ends: map[scope]bool{}}
	for _, one := range ending {
		for _, in := range v.within(one) {
			w.ends[in] = true
		}
	}
	for i := range s.Holds {
		w.hold(&s.Holds[i], v)
	}
	for i := range s.Waiters {
		if s.Waiters[i].Refused == "" {
			w.wait(&s.Waiters[i], v)
		}
	}
	if err := w.goOn(ctx); err != nil {
		return nil, false, fmt.Errorf("look for a ring of waits: %w", err)
	}
	refuse, left = w.youngest(all)
	return refuse, left, nil
}

// waits are what is held and waited for. Waiters, locks and parts are the nodes of a graph, each
// with a number: a waiter needs locks, a lock the parts that its holders need, and a part those
// that wait inside of it.
type waits struct {
	limit limitOf
	held  []*holding
	line  []*waiter // in order
	locks map[string]*lock
	parts map[scope]*part // that holders need
	ends  map[scope]bool  // in which a wait was refused
	nodes int

	going []*waiter // that go on, which is not passed on yet
}

// waiter is one that waits.
type waiter struct {
	*store.Waiter
	node  int
	lacks int  // locks without room, and lines of Ordered locks in which it is behind another; 0: it goes on
	never bool // it wants more of a lock than there is, so it is in no line
	parts []*part
}

// holding is a hold, which ends when nobody waits in vain in the parts that it needs.
type holding struct {
	*store.Holding
	parts []*part
	left  int // parts in which somebody does
}

// part is what is inside of a scope.
type part struct {
	node    int
	inside  []*waiter
	blocked int        // those of them that wait in vain
	before  []*holding // end after it
}

// lock is one that is held or waited for.
type lock struct {
	node        int
	limit, used int
	bounded     bool // else its semaphore is gone
	holders     []*holding
	line        []place // who wants it, in order
	first       int     // in line, of those that wait in vain
	short       []place // for whom it has no room
}

type place struct {
	*waiter
	permits int
	ordered bool
}

// busy says whether so much of a lock is held that it has no room.
func (l *lock) busy(permits int) bool {
	return l.bounded && permits <= l.limit && l.used+permits > l.limit
}

func (w *waits) lock(name string) *lock {
	l := w.locks[name]
	if l == nil {
		l = &lock{node: w.node()}
		l.limit, l.bounded = w.limit(name)
		w.locks[name] = l
	}
	return l
}

func (w *waits) node() int {
	w.nodes++
	return w.nodes - 1
}

// hold enters a hold. A reserved one is taken for one that ends by itself: it may be nobody's, and
// a refusal is for good. If it is held, there is a ring as soon as status says so.
func (w *waits) hold(h *store.Holding, v *view) {
	one := &holding{Holding: h}
	var needs []scope
	if !h.IsReserved() {
		needs = v.needs(h.Ticket)
	}
	if slices.ContainsFunc(needs, func(s scope) bool { return w.ends[s] }) {
		needs = nil
	}
	for _, s := range needs {
		p := w.parts[s]
		if p == nil {
			p = &part{node: w.node()}
			w.parts[s] = p
		}
		p.before, one.parts = append(p.before, one), append(one.parts, p)
	}
	for _, held := range h.Locks {
		l := w.lock(held.Name)
		l.used, l.holders = l.used+held.Permits, append(l.holders, one)
	}
	w.held = append(w.held, one)
}

// wait enters one that waits, when all holds are entered, as if all before it waited in vain.
func (w *waits) wait(s *store.Waiter, v *view) {
	one := &waiter{Waiter: s, node: w.node()}
	for _, in := range v.within(s.Ticket) {
		if p := w.parts[in]; p != nil {
			p.inside, one.parts = append(p.inside, one), append(one.parts, p)
			p.blocked++
		}
	}
	for _, want := range s.Wants {
		l, at := w.lock(want.Name), place{one, want.Permits, want.Ordered}
		one.never = one.never || l.bounded && want.Permits > l.limit
		if l.busy(want.Permits) {
			one.lacks++
			l.short = append(l.short, at)
		}
		if want.Ordered && len(l.line) > 0 {
			one.lacks++
		}
		l.line = append(l.line, at)
	}
	w.line = append(w.line, one)
}

// goOn lets those go on that need nothing that waits in vain, and those that need what they hold.
func (w *waits) goOn(ctx context.Context) error {
	for _, one := range w.line {
		if one.lacks == 0 {
			w.going = append(w.going, one)
		}
	}
	for _, l := range w.locks {
		slices.SortFunc(l.short, func(a, b place) int { return cmp.Compare(b.permits, a.permits) })
		w.moveUp(l)
	}
	for _, h := range w.held {
		for _, p := range h.parts {
			if p.blocked > 0 {
				h.left++
			}
		}
		if h.left == 0 {
			w.end(h)
		}
	}
	for last := len(w.going) - 1; last >= 0; last = len(w.going) - 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		one := w.going[last]
		w.going = w.going[:last]
		w.passOn(one)
	}
	return nil
}

// passOn tells those that need one that it goes on.
func (w *waits) passOn(one *waiter) {
	for _, p := range one.parts {
		if p.blocked--; p.blocked > 0 {
			continue
		}
		for _, h := range p.before {
			if h.left--; h.left == 0 {
				w.end(h)
			}
		}
	}
	for _, want := range one.Wants {
		w.moveUp(w.locks[want.Name])
	}
}

// end frees what is held, and those go on for whom there is room then.
func (w *waits) end(h *holding) {
	for _, held := range h.Locks {
		l := w.locks[held.Name]
		l.used -= held.Permits
		for last := len(l.short) - 1; last >= 0 && !l.busy(l.short[last].permits); last-- {
			w.lackLess(l.short[last].waiter)
			l.short = l.short[:last]
		}
	}
}

// moveUp finds the first in the line of a lock that waits in vain. Nobody before it is behind
// another.
func (w *waits) moveUp(l *lock) {
	for l.first < len(l.line) {
		if first := l.line[l.first]; first.lacks > 0 && !first.never {
			return
		}
		if l.first++; l.first < len(l.line) && l.line[l.first].ordered {
			w.lackLess(l.line[l.first].waiter)
		}
	}
}

func (w *waits) lackLess(one *waiter) {
	if one.lacks--; one.lacks == 0 {
		w.going = append(w.going, one)
	}
}

// youngest are, of each set of those that wait for themselves and for each other, the one that
// waits in vain, and is needed, and came last. Without all, sets that wait for another
// one are left.
func (w *waits) youngest(all bool) (some []*store.Waiter, left bool) {
	sets := ringsOf(w.edges())
	last := map[int]*waiter{} // by set
	for _, one := range w.line {
		set := sets.of[one.node]
		if set == 0 || !one.needed() {
			continue
		}
		if sets.behind[one.node] && !all {
			left = true
			continue
		}
		if was := last[set]; was == nil || one.cameAfter(was) {
			last[set] = one
		}
	}
	for _, one := range w.line {
		if last[sets.of[one.node]] == one {
			some = append(some, one.Waiter)
		}
	}
	return some, left
}

// needed says whether one waits in vain, and somebody needs it: who does has not ended, as this one
// did not go on.
func (w *waiter) needed() bool { return w.lacks > 0 && len(w.parts) > 0 }

// cameAfter is the order in which those that wait came.
func (w *waiter) cameAfter(other *waiter) bool {
	return cmp.Or(w.Ticket.Arrival().Compare(other.Ticket.Arrival()), cmp.Compare(w.Ticket.ID, other.Ticket.ID)) > 0
}

// edges are the ways from each node to those for which it waits in vain. That of a waiter to a
// lock is for its holders, that to another waiter for its place before it in an Ordered line.
func (w *waits) edges() [][]int {
	next := make([][]int, w.nodes)
	way := func(from, to int) { next[from] = append(next[from], to) }
	for _, p := range w.parts {
		for _, one := range p.inside {
			if one.lacks > 0 {
				way(p.node, one.node)
			}
		}
	}
	for _, l := range w.locks {
		for _, h := range l.holders {
			for _, p := range h.parts { // of a hold that ended they lead nowhere
				way(l.node, p.node)
			}
		}
		l.ways(way)
	}
	return next
}

// ways are those of who waits for a lock.
func (l *lock) ways(way func(from, to int)) {
	var before *waiter // the last in line
	for _, at := range l.line {
		if at.lacks == 0 {
			continue
		}
		if l.busy(at.permits) {
			way(at.node, l.node)
		}
		if at.ordered && before != nil {
			way(at.node, before.node)
		}
		if !at.never {
			before = at.waiter
		}
	}
}
