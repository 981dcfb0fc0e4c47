// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// After a moment in which Redis' clock was ahead all fences are: a hold of hours would count as one
// of no time. A burst of grants has fences that are ahead, too, by a moment.
//
// mutations: locks_drop.lua that tells of a hold whose fence is far ahead, or of none whose
// fence is ahead.
func TestAHoldWhoseFenceIsAheadOfTheClockTellsNoTime(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		for ahead, want := range map[time.Duration]int{time.Hour: 0, time.Minute: 0, 500 * time.Millisecond: 1} {
			a := s.take(ticket("a", 5, 0), one("x", 1))
			fence := time.Now().Add(ahead).UnixMilli()
			if err := s.client.HSet(t.Context(), "{adm-locks}:holds", "ha", fmt.Sprintf("%020d %d team/a team/a 1 x", 5, fence)).Err(); err != nil {
				t.Fatal(err)
			}
			got, err := s.store.DropLocks(t.Context(), store.Dropping{Ticket: "a"})
			if err != nil || got.Holds != 1 || len(got.Ended) != want {
				t.Errorf("a fence %s ahead, after %d: %+v, %v; want %d that ended", ahead, a.Fence, got, err, want)
			}
			s.table.Drop(store.Dropping{Ticket: "a"})
		}
	})
}
