// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

// maxSpare is for how many runs that ended it is known at a time that their places are given away
// next: to find them takes a look at all rows.
const maxSpare = 1000

// spare is a run that ended, whose place a newer one may have.
type spare struct {
	uid     string
	created time.Time
}

// best are the rows that a list keeps where it has no room for all: those under way, then those
// that ended; the newest of each.
func best(rows []facts.Row, limit int) []facts.Row {
	slices.SortFunc(rows, func(a, b facts.Row) int {
		if ended := a.Ended(); ended != b.Ended() {
			if ended {
				return 1
			}
			return -1
		}
		return b.Created.Compare(a.Created)
	})
	clear(rows[limit:]) // so that their texts are not kept
	return rows[:limit]
}

// fits says whether there is a place for one more run. The caller has the mutex.
func (f *feed) fits(row *facts.Row) bool {
	if len(f.rows) < f.limit && f.room.take(1) > 0 {
		return true
	}
	f.more = true
	return f.yield(row)
}

// yield takes the oldest run that ended out of the rows, for one that is newer, or under way. It
// says whether there was one; its room is that of the other one then. Runs that ended since the
// last look at all rows come with the next look. The caller has the mutex.
func (f *feed) yield(to *facts.Row) bool {
	if len(f.spare) == 0 && f.ripe {
		f.spare, f.ripe = f.oldest()
	}
	for len(f.spare) > 0 {
		at := len(f.spare) - 1
		one := f.spare[at]
		_, kept := f.rows[one.uid]
		if kept && to.Ended() && !one.created.Before(to.Created) {
			return false
		}
		f.spare = f.spare[:at]
		if kept {
			delete(f.rows, one.uid)
			return true
		}
	}
	return false
}

// oldest are the oldest runs that ended, maxSpare at most, the oldest last; others: there are more
// of them. The caller has the mutex.
func (f *feed) oldest() (all []spare, others bool) {
	for uid, row := range f.rows {
		if row.Ended() {
			all = append(all, spare{uid, row.Created})
		}
	}
	slices.SortFunc(all, func(a, b spare) int { return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.uid, b.uid)) })
	return slices.Clone(all[max(0, len(all)-maxSpare):]), len(all) > maxSpare
}
