// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"math"
	"time"
	_ "time/tzdata" // images have no zones
)

// period is a part of a zone with one offset, in minutes of Unix time: start belongs
// to it, end does not.
type period struct {
	start, end, offset int64
}

// longestShift is more than any clock was ever set by, in minutes: lines of the date were moved by
// a day.
const longestShift = 26 * 60

// at is the period of a minute, or the part of it that ends with the day: on 31 December of leap
// years after 2037 ZoneBounds says that the period ended before.
func at(zone *time.Location, minute int64) period {
	t := time.Unix(minute*60, 0).In(zone)
	from, to := t.ZoneBounds()
	_, seconds := t.Zone()
	offset, _ := floorDiv(int64(seconds), 60)
	p := period{start: math.MinInt64, end: math.MaxInt64, offset: offset}
	if !from.IsZero() {
		p.start = minuteFrom(from)
	}
	if !to.IsZero() {
		p.end = minuteFrom(to)
	}
	if p.end <= minute {
		day, _ := floorDiv(minute, minutesOfDay)
		p.end = (day + 1) * minutesOfDay
	}
	return p
}

// minuteFrom is the first whole minute at a time or later.
func minuteFrom(t time.Time) int64 {
	minute, rest := floorDiv(t.Unix(), 60)
	if rest > 0 {
		minute++
	}
	return minute
}

// cameBefore says whether the wall time of a minute in p came before in an earlier period.
func cameBefore(zone *time.Location, p period, minute int64) bool {
	wall := minute + p.offset
	for q := p; q.start != math.MinInt64 && minute-q.start <= longestShift; {
		q = at(zone, q.start-1)
		if earlier := wall - q.offset; earlier >= q.start && earlier < q.end {
			return true
		}
	}
	return false
}
