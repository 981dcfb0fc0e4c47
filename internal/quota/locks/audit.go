// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// findings are the differences between what Redis has of locks and what runs say in status, and
// whom to wake.
type findings struct {
	drop    []store.Dropping // over, or cannot be written any more
	unknown []string         // tickets of runs that the view does not have
	heads   []store.Wake     // those of them for whom there is room
	missing []string         // tickets that hold by status, and not in Redis, if the view is right
	real    []string         // the same, of which Redis has what was reserved
	idle    []string         // hold what status does not say, and that can still be written
	places  []string         // wait, which status does not say
	wake    map[types.UID]bool
}

// limitOf says how many permits a lock has; not ok: its semaphore is gone.
type limitOf func(lock string) (permits int, ok bool)

// aheadInLine is how many of those that wait for the same rates a resync wakes: one would do, but
// for a run that may not be written, and so does not take its turn.
const aheadInLine = 16

// ratedOf says whether holds of a lock begin at a bounded rate.
type ratedOf func(lock string) bool

// belowOf says whether a child run inside of what a ticket is for has not ended.
type belowOf func(ticket string) bool

// audit compares a snapshot with runs that were read after it.
//
//	                           hold                            place                          neither
//	run is not in the view     unknown                         unknown
//	run or step over           drop                            drop
//	the same, a child is not   nothing                         nothing
//	needs a newer operator     nothing                         places
//	held by status             as it should be                 nothing                        missing
//	the same                   reserved: real
//	not, at a newer version    drop: nobody can write it
//	not, at that version       idle: wake; see controller
//	waits by status                                            wake, if there is room         wake: it takes a place
//	does not                                                   idle: places
func audit(runs map[types.UID]fact, s store.LocksSnapshot, limit limitOf, rated ratedOf, below belowOf) findings {
	f := findings{wake: map[types.UID]bool{}}
	has := map[string]bool{}
	for _, h := range s.Holds {
		has[h.Ticket.ID] = true
		f.hold(runs, h, below)
	}
	for _, w := range s.Waiters {
		has[w.Ticket.ID] = true
		f.place(runs, w, below)
	}
	for _, run := range runs {
		f.neither(run, has)
	}
	for _, w := range runnable(s, limit, rated) {
		if _, known := runs[uidOf(w.Ticket.ID)]; !known {
			f.heads = append(f.heads, store.Wake{Ticket: w.Ticket.ID, Run: w.Ticket.Run})
		}
		f.wake[uidOf(w.Ticket.ID)] = true
	}
	return f
}

func (f *findings) hold(runs map[types.UID]fact, h store.Holding, below belowOf) {
	ticket := h.Ticket.ID
	run, known := runs[uidOf(ticket)]
	if !known {
		f.unknown = append(f.unknown, ticket)
		return
	}
	if run.unread() { // it may be a hold that this version does not see, and a run that it does not write
		return
	}
	p, declared := run.part(ticket)
	switch {
	case p.Over && below(ticket):
	case p.Over || !declared && run.begun():
		f.drop = append(f.drop, store.Dropping{Ticket: ticket})
	case len(p.Holds) > 0:
		f.held(h)
	case newer(run.version, h.Ticket.Version):
		f.drop = append(f.drop, store.Dropping{Ticket: ticket, Seen: run.version})
	default:
		f.idle = append(f.idle, ticket)
		f.wake[run.uid] = true
	}
}

// held looks at a hold that status has, too.
func (f *findings) held(h store.Holding) {
	if h.IsReserved() {
		f.real = append(f.real, h.Ticket.ID)
	}
}

func (f *findings) place(runs map[types.UID]fact, w store.Waiter, below belowOf) {
	ticket := w.Ticket.ID
	run, known := runs[uidOf(ticket)]
	p, _ := run.part(ticket)
	p.Over = p.Over && !run.unread()
	switch {
	case !known:
		f.unknown = append(f.unknown, ticket)
	case p.Over && below(ticket): // it may have its locks by now
	case p.Over:
		f.drop = append(f.drop, store.Dropping{Ticket: ticket})
	case w.Refused != "":
		f.wake[run.uid] = true // it was not told yet
	case len(p.Holds) > 0: // it was granted since: a drop would take what its status has
	case !p.Waits || run.suspended:
		f.places = append(f.places, ticket)
	}
}

// neither looks for tickets of a run that Redis has nothing of.
func (f *findings) neither(run fact, has map[string]bool) {
	for ticket, p := range run.tickets {
		switch {
		case has[ticket] || p.Over:
		case len(p.Holds) > 0:
			f.missing = append(f.missing, ticket)
		case p.Waits && !run.suspended:
			f.wake[run.uid] = true
		}
	}
}

// runnable are those that wait and can have their locks now, each beside those before it, and those
// that wait for a semaphore that is gone. Of those that wait for the same rates, and for nothing
// else, it is the first ones: when a hold begins the script names the next. Who stands behind one
// that waits on, in an Ordered line, is none of them: it would be promised what it cannot take.
func runnable(s store.LocksSnapshot, limit limitOf, rated ratedOf) (all []store.Waiter) {
	used, lines, stands := usedOf(s.Holds), map[string]int{}, map[string]bool{}
	for _, w := range s.Waiters {
		if w.Refused != "" || !fits(w.Wants, nil, limit) { // it is in no line
			continue
		}
		line := lineOf(w.Wants, rated)
		wakes := !behind(w.Wants, stands) && (line == "" || lines[line] < aheadInLine) && fits(w.Wants, used, limit)
		if wakes {
			lines[line]++
			all = append(all, w)
		}
		if !wakes || !promise(used, w.Wants, rated) {
			stand(stands, w.Wants)
		}
	}
	return all
}

// stand notes that one stands in the lines of what it wants.
func stand(stands map[string]bool, wants []store.Want) {
	for _, w := range wants {
		stands[w.Name] = true
	}
}

// behind says whether one of those that stand in the lines of locks is before who wants these.
func behind(wants []store.Want, stands map[string]bool) bool {
	return slices.ContainsFunc(wants, func(w store.Want) bool { return w.Ordered && stands[w.Name] })
}

// promise counts what one that is woken may take. One that wants a lock with a rate may have to
// wait for that, for as long as its period, and then takes nothing of the others: not sure.
func promise(used map[string]int, wants []store.Want, rated ratedOf) (sure bool) {
	sure = !slices.ContainsFunc(wants, func(w store.Want) bool { return rated(w.Name) })
	for _, w := range wants {
		if sure || rated(w.Name) {
			used[w.Name] += w.Permits
		}
	}
	return sure
}

// lineOf is which locks one waits for, if all of them have a rate. One that waits for another lock
// as well may wait in its queue, and whoever is behind must not wait with it.
func lineOf(wants []store.Want, rated ratedOf) string {
	var line []string
	for _, w := range wants {
		if !rated(w.Name) { // or its semaphore is gone, and it is to be told
			return ""
		}
		line = append(line, w.Name)
	}
	slices.Sort(line)
	return strings.Join(line, " ")
}

func usedOf(holds []store.Holding) map[string]int {
	used := map[string]int{}
	for _, h := range holds {
		for _, l := range h.Locks {
			used[l.Name] += l.Permits
		}
	}
	return used
}

func fits(wants []store.Want, used map[string]int, limit limitOf) bool {
	return !slices.ContainsFunc(wants, func(w store.Want) bool {
		n, ok := limit(w.Name)
		return ok && used[w.Name]+w.Permits > n
	})
}

// newer compares resourceVersions: numbers, without leading zeros.
func newer(a, b string) bool { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) > 0 }
