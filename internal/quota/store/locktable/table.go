// SPDX-License-Identifier: Apache-2.0

// Package locktable is what the scripts of locks do, in memory and in Go: the reference that they
// are compared with, and what the model of internal/quota/locks runs on.
//
// It has no epoch of servers: Lose is all that can happen to its data.
package locktable

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Table has holds and places. Its rates know no time: what began stays in its period.
type Table struct {
	Open   bool
	Token  string // of the rebuild that is under way; "": none is
	Holds  map[string]store.Holding
	Places map[string]Place
	Fence  int64
	Opened time.Time      // when the last rebuild ended
	Began  map[string]int // holds of locks with a rate, since Opened
}

// Place is that of a ticket that waits.
type Place struct {
	store.Waiter
	Age uint64 // the version of its first question
}

// New is a table without data, which is closed.
func New() *Table {
	return &Table{Holds: map[string]store.Holding{}, Places: map[string]Place{}, Began: map[string]int{}}
}

// Clone is a table of its own with the same data.
func (t *Table) Clone() *Table {
	c := *t
	c.Holds, c.Places, c.Began = maps.Clone(t.Holds), maps.Clone(t.Places), maps.Clone(t.Began)
	return &c
}

// Lose loses all data.
func (t *Table) Lose() { *t = *New() }

// Begin begins a rebuild.
func (t *Table) Begin(token string) string {
	if !t.Open && t.Token == "" {
		t.Token = token
	}
	return t.Token
}

// Restore enters holds; with a token it ends a rebuild. Not ok: it is closed, or the rebuild is
// not known any more.
func (t *Table) Restore(token string, fence int64, all ...store.Holding) (ok bool) {
	if !t.Enter(token, fence, all...) {
		return false
	}
	t.Open, t.Token = true, ""
	return true
}

// Enter is a call of Restore that is not its last one: a rebuild does not end by it.
func (t *Table) Enter(token string, fence int64, all ...store.Holding) (ok bool) {
	if !t.Open && (token == "" || t.Token != token) {
		return false
	}
	t.Fence = max(t.Fence, fence)
	for _, h := range all {
		t.Holds[h.Ticket.ID] = h
		delete(t.Places, h.Ticket.ID)
	}
	return true
}

// Used is how many permits of a lock are held.
func (t *Table) Used(name string) int {
	n := 0
	for _, h := range t.Holds {
		for _, l := range h.Locks {
			if l.Name == name {
				n += l.Permits
			}
		}
	}
	return n
}

// Take is store.Store.TakeLocks. Not ok: it is closed, or other locks were granted that may still
// be written. Of Rest it says only that there is one.
func (t *Table) Take(k store.Ticket, wants []store.Want) (a store.LocksAnswer, ok bool) {
	h, held := t.Holds[k.ID]
	switch {
	case !t.Open:
		return a, false
	case held && same(h.Locks, wants):
		if number(h.Ticket.Version) < number(k.Version) {
			h.Ticket.Version = k.Version
			t.Holds[k.ID] = h
		}
		delete(t.Places, k.ID)
		return store.LocksAnswer{State: store.LocksHeld, Fence: h.Fence}, true
	case held && number(h.Ticket.Version) >= number(k.Version):
		return a, false
	}
	delete(t.Holds, k.ID)
	mine := t.Places[k.ID]
	if mine.Refused != "" {
		return store.LocksAnswer{State: mine.Refused}, true
	}
	wants = slices.SortedFunc(slices.Values(wants), func(a, b store.Want) int { return cmp.Compare(a.Name, b.Name) })
	return t.ask(k, wants, h), true
}

// ask is a question of a ticket that does not hold what it wants; had is what it held until now.
func (t *Table) ask(k store.Ticket, wants []store.Want, had store.Holding) store.LocksAnswer {
	mine, was := t.Places[k.ID]
	next := Place{Waiter: store.Waiter{Ticket: k, Wants: wants}, Age: number(k.Version)}
	touched := locksOf(had.Locks)
	if was {
		next.Age, next.Ticket.Created, next.Ticket.Came = mine.Age, mine.Ticket.Created, mine.Ticket.Came
		switch edited := !same(holdsOf(mine.Wants), wants); {
		case edited:
			touched, was = names(mine.Wants), false
		case never(mine.Wants): // it was in no line
		case k.Priority != mine.Ticket.Priority, never(wants):
			touched = names(wants)
		}
	}
	delete(t.Places, k.ID)
	lock, rest, busy := t.blocked(next)
	if busy {
		a, left := t.wait(next, was, lock)
		if rest && a.State == store.LocksWaiting {
			a.Rest = 1
		}
		a.Wake = append(a.Wake, t.wake(slices.Concat(touched, left))...)
		return a
	}
	t.Fence++
	for _, w := range wants {
		t.begin(w)
	}
	t.Holds[k.ID] = store.Holding{Ticket: k, Fence: t.Fence, Locks: holdsOf(wants)}
	return store.LocksAnswer{State: store.LocksHeld, Fence: t.Fence, Wake: t.wake(slices.Concat(names(wants), touched))}
}

// wait is the end of a question of a ticket that cannot have its locks. left are locks whose lines
// it, or others for it, leave.
func (t *Table) wait(next Place, was bool, lock string) (a store.LocksAnswer, left []string) {
	a = store.LocksAnswer{State: store.LocksWaiting, Lock: lock}
	wants := names(next.Wants)
	superseded, refused := t.refusal(&next, was)
	switch {
	case refused != nil && was:
		return *refused, wants
	case refused != nil:
		return *refused, nil
	}
	for _, id := range slices.Sorted(maps.Keys(superseded)) {
		left = append(left, names(t.Places[id].Wants)...)
		t.Refuse(id, store.LocksSuperseded)
		a.Wake = append(a.Wake, store.Wake{Ticket: id, Run: t.Places[id].Ticket.Run})
	}
	t.Places[next.Ticket.ID] = next
	line := t.line([]string{lock})
	a.Used, a.Waiting, a.Cancel = t.Used(lock), len(line), t.cancels(next)
	a.Position = 1 + slices.IndexFunc(line, func(p Place) bool { return p.Ticket.ID == next.Ticket.ID })
	if a.Position > 1 {
		a.Ahead = line[a.Position-2].Ticket.Run
	}
	return a, left
}

// refusal says whether a ticket may not wait, or else whose waits end for it.
func (t *Table) refusal(next *Place, was bool) (superseded map[string]bool, refused *store.LocksAnswer) {
	superseded = map[string]bool{}
	for _, w := range next.Wants {
		line := t.line([]string{w.Name})
		if state := t.refuses(*next, w, line, was); state != "" {
			if state == store.LocksSuperseded {
				next.Refused, next.Wants = state, nil
				t.Places[next.Ticket.ID] = *next
			}
			return nil, &store.LocksAnswer{State: state, Lock: w.Name}
		}
		if latest(w) && !never(next.Wants) {
			for _, other := range line {
				superseded[other.Ticket.ID] = true
			}
		}
	}
	return superseded, nil
}

// refuses is why a ticket may not wait in the line of a lock; "": it may.
func (t *Table) refuses(next Place, w store.Want, line []Place, was bool) string {
	switch {
	case w.OnBusy == store.DropNewest && t.full(w):
		return store.LocksBusy
	case latest(w) && never(next.Wants):
	case latest(w):
		if slices.ContainsFunc(line, func(other Place) bool { return sooner(next, other) }) {
			return store.LocksSuperseded
		}
	case !was && len(line) >= w.Longest:
		return store.LocksQueueFull
	}
	return ""
}

// latest says whether only the last one that comes may wait for a lock.
func latest(w store.Want) bool { return w.OnBusy == store.KeepLatest || w.OnBusy == store.CancelOldest }

// blocked is the lock that a ticket has to wait for; rest: it is the first that waits for its rate
// only.
func (t *Table) blocked(p Place) (lock string, rest, busy bool) {
	current, promised := current(p), map[string]int{}
	ahead := func(o Place) bool { return before(o, p) }
	if lock, rest, busy = t.short(p.Wants, promised, nil); busy {
		lates := t.runnable(names(p.Wants), current, map[string]int{}, ahead, func(Place) {})
		return lock, rest && !slices.ContainsFunc(lates, func(l late) bool { return l.lock == lock }), true
	}
	for _, w := range p.Wants {
		if w.Ordered && t.behind(w.Name, p) {
			return w.Name, false, true
		}
	}
	t.runnable(names(p.Wants), current, promised, ahead, func(Place) {})
	lock, _, busy = t.short(p.Wants, promised, nil)
	return lock, false, busy
}

// promise promises permits of locks, and, by "#" and the lock, that a hold of it begins.
func promise(promised map[string]int, wants []store.Want) {
	for _, w := range wants {
		promised[w.Name] += w.Permits
		promised["#"+w.Name]++
	}
}

// late is who is the first to wait only for the rate of a lock.
type late struct {
	lock string
	wake store.Wake
}

// runnable calls f for those in line, of those that count, who can have their locks now, each
// beside those before it, and what is promised; what they get is added to that. It returns who
// waits only for a rate.
func (t *Table) runnable(
	locks []string, current map[string]store.Want, promised map[string]int, counts func(Place) bool, f func(Place),
) (lates []late) {
	got := map[string]bool{}
	for _, p := range t.line(locks) {
		if !counts(p) {
			continue
		}
		lock, soon, busy := t.short(p.Wants, promised, current)
		if soon && !slices.ContainsFunc(lates, func(l late) bool { return l.lock == lock }) {
			lates = append(lates, late{lock: lock, wake: store.Wake{Ticket: p.Ticket.ID, Run: p.Ticket.Run}})
		}
		if busy || !t.heads(p, got) {
			continue
		}
		promise(promised, p.Wants)
		got[p.Ticket.ID] = true
		f(p)
	}
	return lates
}

func (t *Table) heads(p Place, got map[string]bool) bool {
	for _, w := range p.Wants {
		if w.Ordered && slices.ContainsFunc(t.line([]string{w.Name}), func(o Place) bool { return before(o, p) && !got[o.Ticket.ID] }) {
			return false
		}
	}
	return true
}

// short is the first lock without room; soon: it is only for its rate.
func (t *Table) short(wants []store.Want, promised map[string]int, current map[string]store.Want) (lock string, soon, busy bool) {
	now := func(w store.Want) store.Want {
		if c, known := current[w.Name]; known {
			return c
		}
		return w
	}
	for _, w := range wants {
		if t.Used(w.Name)+promised[w.Name]+w.Permits > now(w).Limit {
			return w.Name, false, true
		}
	}
	for _, w := range wants {
		if t.tooSoon(now(w), promised["#"+w.Name]) {
			return w.Name, true, true
		}
	}
	return "", false, false
}

// begin notes that a hold of a lock began.
func (t *Table) begin(w store.Want) {
	if w.Rate != nil {
		t.Began[w.Name]++
	}
}

// full says whether a lock has no room, also without what is reserved, or its rate lets none begin.
func (t *Table) full(w store.Want) bool {
	if used := t.Used(w.Name); used+w.Permits > w.Limit {
		return used-t.Used(store.ReservedPrefix+w.Name)+w.Permits > w.Limit
	}
	return t.tooSoon(w, 0)
}

// tooSoon says whether no hold of a lock may begin, if more are about to.
func (t *Table) tooSoon(w store.Want, more int) bool {
	return w.Rate != nil && (!w.Rate.Since.After(t.Opened) || t.Began[w.Name]+more+1 > w.Rate.Starts)
}

func (t *Table) wake(locks []string) (all []store.Wake) {
	lates := t.runnable(locks, nil, map[string]int{}, func(Place) bool { return true }, func(p Place) {
		all = append(all, store.Wake{Ticket: p.Ticket.ID, Run: p.Ticket.Run})
	})
	for _, l := range lates {
		all = append(all, l.wake)
	}
	return all
}

// never says whether more is asked for than there is: who waits so is in no line.
func never(wants []store.Want) bool {
	return slices.ContainsFunc(wants, func(w store.Want) bool { return w.Permits > w.Limit })
}

// line is who waits for any of the locks, in order.
func (t *Table) line(locks []string) (all []Place) {
	for _, p := range t.Places {
		if p.Refused == "" && !never(p.Wants) && slices.ContainsFunc(p.Wants, func(w store.Want) bool { return slices.Contains(locks, w.Name) }) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, compare)
	return all
}

func before(a, b Place) bool { return compare(a, b) < 0 }

func compare(a, b Place) int {
	return cmp.Or(cmp.Compare(b.Ticket.Priority, a.Ticket.Priority), a.Ticket.Created.Compare(b.Ticket.Created), cmp.Compare(a.Age, b.Age),
		a.Ticket.Arrival().Compare(b.Ticket.Arrival()), cmp.Compare(a.Ticket.ID, b.Ticket.ID))
}

// sooner says whether a came before b, whatever their places in line.
func sooner(a, b Place) bool {
	return cmp.Or(a.Ticket.Arrival().Compare(b.Ticket.Arrival()), cmp.Compare(a.Age, b.Age)) < 0
}

func names(wants []store.Want) []string { return locksOf(holdsOf(wants)) }

func locksOf(holds []store.Hold) []string {
	all := make([]string, len(holds))
	for i, h := range holds {
		all[i] = h.Name
	}
	return all
}

func holdsOf(wants []store.Want) []store.Hold {
	all := make([]store.Hold, len(wants))
	for i, w := range wants {
		all[i] = store.Hold{Name: w.Name, Permits: w.Permits}
	}
	return all
}

// same says whether what is held, or waited for, is what is wanted, in any order.
func same(holds []store.Hold, wants []store.Want) bool {
	return len(holds) == len(wants) && !slices.ContainsFunc(holdsOf(wants), func(w store.Hold) bool { return !slices.Contains(holds, w) })
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // the store refuses what is no number
	return n
}
