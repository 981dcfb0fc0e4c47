// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"math"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// perHistory is how many groups in flight one history has at the worst, whatever the times of its
// items: see fewInFlight. Fewer items than that are no more groups than items.
const perHistory = 4

// apart is what keeps items in flight in different groups, whatever their times.
type apart struct {
	history    [2]int32
	deadLetter v1alpha1.DeadLetterReason
}

// first is that of items that begin.
var first = apart{history: [2]int32{1, 0}}

// aloft counts the items in flight by what keeps them apart. Groups that nothing makes fewer are to
// be few at the worst: who would make another one too many waits until others are over.
type aloft struct {
	items map[apart]int
	begun int // items that began and are at their first attempt
	room  int // for groups, at the worst
}

// aloft counts the items in flight of one of some active steps. While items are to begin, their
// groups have room: one that works for a day on its fifth attempt does not keep new ones back.
func (it *Items) aloft(active int) aloft {
	a := aloft{items: map[apart]int{}, room: perHistory * Share(bounds.MaxGroups, active)}
	for k := range it.groups {
		if g := &it.groups[k]; status.InFlight(g.Phase) {
			a.items[apart{g.history(), g.DeadLetter}] += g.Set.Len()
		}
	}
	for of, n := range a.items {
		if of != first {
			a.room -= min(n, perHistory)
		}
	}
	a.begun = a.items[first]
	kept := a.begun
	if it.St.Begun < it.St.Total || len(it.Awaiting()) > 0 {
		kept = max(kept, perHistory)
	}
	a.room -= min(kept, perHistory)
	a.items[first] = kept
	return a
}

// may says whether another item may go out: it makes no group that nothing makes fewer, or there is
// room for it.
func (a *aloft) may(as apart) bool { return a.items[as] >= perHistory || a.room > 0 }

// add counts an item that goes out.
func (a *aloft) add(as apart) {
	if a.items[as] < perHistory {
		a.room--
	}
	a.items[as]++
}

// mayAgain says whether an item of a group that backs off may go out again. One that has no more
// numbers of attempts ends instead.
func (a *aloft) mayAgain(g *Group) bool {
	return g.Attempt == math.MaxInt32 || a.may(again(g))
}

// again is what keeps the next attempt of the items of a group apart.
func again(g *Group) apart { return apart{history: [2]int32{g.Attempt + 1, g.Failures}} }

// Crowded says whether no new items may begin, as those in flight are too far apart: that is so
// where more steps have become active since those went out.
func (it *Items) Crowded(active int) bool {
	a := it.aloft(active)
	return a.room < 0 && a.begun < perHistory
}
