// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"math"
	"time"
)

const (
	minutesOfDay = 24 * 60
	// never is what no wall time and no instant is.
	never = math.MaxInt64
	// monthsAhead bounds the search for a day: between two 29 Februaries are eight years at most.
	monthsAhead = 9 * 12
)

// nextWall is the first wall time that matches, w or later, in minutes since 1970-01-01 00:00 of
// the wall clock; never: none in nine years.
func (e *Expr) nextWall(w int64) int64 {
	day, minute := floorDiv(w, minutesOfDay)
	if minute > 0 {
		m, ok := e.minuteOfDay(int(minute))
		if ok && e.firstDay(day, 1) == day {
			return day*minutesOfDay + int64(m)
		}
		day++
	}
	day = e.firstDay(day, monthsAhead)
	m, ok := e.minuteOfDay(0)
	if day == never || !ok {
		return never
	}
	return day*minutesOfDay + int64(m)
}

// minuteOfDay is the first minute of a day that matches, from or later.
func (e *Expr) minuteOfDay(from int) (int, bool) {
	h, m := from/60, from%60
	if e.hour.has(h) {
		if found, ok := e.minute.from(m); ok {
			return h*60 + found, true
		}
	}
	h, ok := e.hour.from(h + 1)
	m, _ = e.minute.from(0)
	return h*60 + m, ok
}

// firstDay is the first day that matches, from or later, in days since 1970-01-01, in so many
// calendar months; else never.
func (e *Expr) firstDay(from int64, months int) int64 {
	t := time.Unix(from*24*60*60, 0).UTC()
	year, month, d := t.Date()
	day, weekday := from, int(t.Weekday())
	for range months {
		last := daysIn(year, month)
		if !e.month.has(int(month)) {
			skip := last - d + 1
			day, weekday, d = day+int64(skip), (weekday+skip)%7, last+1
		}
		for ; d <= last; d++ {
			if e.onDay(d, weekday) {
				return day
			}
			day, weekday = day+1, (weekday+1)%7
		}
		d, month = 1, month+1
		if month > time.December {
			month, year = time.January, year+1
		}
	}
	return never
}

// onDay says whether a day of a month that matches does: if both fields are restricted,
// one is enough.
func (e *Expr) onDay(d, weekday int) bool {
	inMonth, inWeek := e.dom.has(d), e.dow.has(weekday)
	if e.dom.open || e.dow.open {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

func daysIn(year int, m time.Month) int {
	switch m {
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case time.April, time.June, time.September, time.November:
		return 30
	default:
		return 31
	}
}

// floorDiv divides towards minus infinity: the rest is never negative.
func floorDiv(a, b int64) (quotient, rest int64) {
	quotient, rest = a/b, a%b
	if rest < 0 {
		quotient, rest = quotient-1, rest+b
	}
	return quotient, rest
}
