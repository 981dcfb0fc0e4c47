// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// holding is what a run has of a quota.
type holding struct {
	at  store.Key
	uid types.UID
}

// findings are the differences between what a quota has and the runs in the cache, and
// whom to wake.
type findings struct {
	missing   []fact       // admitted runs without a slot, if the cache is right
	over      []types.UID  // have something that they will never need again, as a matter of fact
	unknown   []types.UID  // are not in the cache
	heads     []store.Next // those of them that wait, and for whom there is room
	misplaced []fact       // live runs that are not admitted and do not wait here, with a slot or place
	unused    []fact       // runs that wait here, and have what they could be admitted with
	wake      []fact
}

// audit compares a quota with the runs of a view that is younger than the snapshot. admitted and
// waiting are the runs of the view that have to be there.
//
//	                      slot             place in the queue           neither
//	ended                 over             over
//	not in the cache      unknown          unknown
//	admitted here                          over, once it is not    missing
//	                                       missing any more
//	admitted elsewhere    over             over
//	waits here            wake: its grant  wake, if there is       wake: it takes a place,
//	                      was not used;    room for it; unused     unless it waits for locks
//	                      unused
//	suspended, or waits   misplace         misplace
//	elsewhere
func audit(v *view, at store.Key, b store.Snapshot, limit int, admitted, waiting []fact) findings {
	var f findings
	slots, places := make(map[types.UID]bool, len(b.Slots)), make(map[types.UID]bool, len(b.Queue))
	for _, s := range b.Slots {
		slots[types.UID(s.UID)] = true
		f.slot(v, at, types.UID(s.UID))
	}
	free := len(b.Queue)
	if limit >= 0 {
		free = limit - len(b.Slots) - len(b.Reserved)
	}
	for rank, r := range b.Queue {
		places[types.UID(r.UID)] = true
		f.place(v, at, r, rank < free)
	}
	for _, run := range admitted {
		if !slots[run.uid] {
			f.missing = append(f.missing, run)
		}
	}
	for _, run := range waiting {
		if !slots[run.uid] && !places[run.uid] && !run.forLocks {
			f.wake = append(f.wake, run)
		}
	}
	return f
}

func (f *findings) slot(v *view, at store.Key, uid types.UID) {
	run, known := v.runs[uid]
	switch {
	case !known:
		f.unknown = append(f.unknown, uid)
	case run.finished, run.admitted() && !run.under(at):
		f.over = append(f.over, uid)
	case run.admitted(), run.newer:
	case v.waitsAt(run, at):
		f.unused, f.wake = append(f.unused, run), append(f.wake, run)
	default:
		f.misplaced = append(f.misplaced, run)
	}
}

func (f *findings) place(v *view, at store.Key, r store.Run, next bool) {
	uid := types.UID(r.UID)
	run, known := v.runs[uid]
	switch {
	case !known:
		f.unknown = append(f.unknown, uid)
		if next {
			f.heads = append(f.heads, store.Next{UID: r.UID, Name: r.Name})
		}
	case run.under(at): // restoring its slot takes its place
	case run.finished, run.admitted():
		f.over = append(f.over, uid)
	case !v.waitsAt(run, at):
		f.misplaced = append(f.misplaced, run)
	case next:
		f.unused, f.wake = append(f.unused, run), append(f.wake, run)
	}
}

// headsBut are the heads without those that are known to be gone.
func (f *findings) headsBut(gone map[types.UID]bool) []store.Next {
	return slices.DeleteFunc(f.heads, func(n store.Next) bool { return gone[types.UID(n.UID)] })
}
