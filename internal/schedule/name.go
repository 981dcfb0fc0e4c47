// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/internal/cron"
)

// RunName is the name of a slot's run: that of the schedule, and the minutes since 1970.
func RunName(schedule string, slot time.Time) string {
	return schedule + "-" + strconv.FormatInt(Minute(slot), 10)
}

// SlotOf is the slot of a run; not ok: the name is none of RunName.
func SlotOf(schedule, run string) (slot time.Time, ok bool) {
	text, ok := strings.CutPrefix(run, schedule+"-")
	minute, err := strconv.ParseUint(text, 10, 40)
	if !ok || err != nil || strconv.FormatUint(minute, 10) != text {
		return time.Time{}, false
	}
	return time.Unix(int64(minute)*60, 0).UTC(), true
}

// Minute is a slot as a number.
func Minute(slot time.Time) int64 { return slot.Unix() / 60 }

// Due is when the run of a slot is to be created: jitter later, and before the next slot. It is the
// same for everybody who knows the schedule.
func Due(table *cron.Timetable, schedule string, slot time.Time, jitter time.Duration) time.Time {
	if jitter <= 0 {
		return slot
	}
	most := jitter
	if next, ok := table.Next(slot); ok {
		most = min(most, next.Sub(slot)-time.Second)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(RunName(schedule, slot))) // never fails
	return slot.Add(time.Duration(h.Sum64()%uint64(most/time.Second+1)) * time.Second)
}
