// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Gap says what becomes of slots at wall times that a zone leaves out.
type Gap string

// Repeat says what becomes of slots at wall times that a zone has twice.
type Repeat string

const (
	// GapByText is RunAfter for a text that names hours, else Skip.
	GapByText Gap = ""
	// GapRunAfter makes them one slot, at the first instant after the gap.
	GapRunAfter Gap = "RunAfter"
	// GapSkip leaves them out, too.
	GapSkip Gap = "Skip"

	// RepeatByText is First for a text that names hours, else Both.
	RepeatByText Repeat = ""
	// RepeatFirst has a slot at the first of two.
	RepeatFirst Repeat = "First"
	// RepeatBoth has a slot at each.
	RepeatBoth Repeat = "Both"
)

// Rules say what happens where clocks are set.
type Rules struct {
	Gap    Gap
	Repeat Repeat
}

// Timetable is a list of cron texts in a zone. It does not change.
type Timetable struct {
	texts []timed
	zone  *time.Location
}

// timed is a text with its rules.
type timed struct {
	Expr
	runAfter, both bool
}

const everyHour = 1<<24 - 1

// New reads cron texts and the name of a zone, as Europe/Berlin; empty: UTC. All errors that it
// joins are of type *FieldError.
func New(texts []string, zone string, rules Rules) (*Timetable, error) {
	t := &Timetable{}
	var problems []error
	for i, text := range texts {
		e, err := Parse(text)
		if err != nil {
			problems = append(problems, placed(err, i))
			continue
		}
		byHour := e.hour.bits != everyHour
		t.texts = append(t.texts, timed{
			Expr:     e,
			runAfter: rules.Gap == GapRunAfter || rules.Gap == GapByText && byHour,
			both:     rules.Repeat == RepeatBoth || rules.Repeat == RepeatByText && !byHour,
		})
	}
	var err error
	if t.zone, err = loadZone(zone); err != nil {
		problems = append(problems, placed(err, -1))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return t, nil
}

func placed(err error, i int) error {
	if wrong, ok := errors.AsType[*FieldError](err); ok {
		wrong.Index = i
	}
	return err
}

func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, wrong("zone", name, "need the name of a zone, as Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, wrong("zone", name, fmt.Sprintf("need the name of a zone, as Europe/Berlin (%v)", err))
	}
	return zone, nil
}

// In is a time as the clocks of the timetable's zone show it.
func (t *Timetable) In(at time.Time) time.Time { return at.In(t.zone) }

// Next is the first slot after a time; not ok: there is none within nine years.
func (t *Timetable) Next(after time.Time) (slot time.Time, ok bool) {
	minute, _ := floorDiv(after.Unix(), 60)
	best := int64(never)
	for i := range t.texts {
		best = min(best, t.next(&t.texts[i], minute))
	}
	if best == never {
		return time.Time{}, false
	}
	return time.Unix(best*60, 0).In(t.zone), true
}

// next is the first slot of a text after a minute, in minutes of Unix time.
func (t *Timetable) next(e *timed, after int64) int64 {
	minute := after + 1
	for last := after + monthsAhead*31*minutesOfDay; minute <= last; {
		p := at(t.zone, minute)
		if minute == p.start && e.runAfter && t.inGap(e, p) {
			return minute
		}
		wall, found := t.inPeriod(e, p, minute)
		if found || wall == never {
			return wall
		}
		end := p.end
		if p.end-minute > longestShift { // wall times that come again after p.end were looked at, too
			end = max(end, wall-p.offset-2*longestShift)
		}
		minute = end
	}
	return never
}

// inPeriod is the first slot in a period, a minute or later; not found: the wall time, after the
// period, of the next that matches.
func (t *Timetable) inPeriod(e *timed, p period, minute int64) (slot int64, found bool) {
	wall := e.nextWall(minute + p.offset)
	for wall != never && wall-p.offset < p.end {
		if e.both || !cameBefore(t.zone, p, wall-p.offset) {
			return wall - p.offset, true
		}
		wall = e.nextWall(wall + 1)
	}
	return wall, false
}

// inGap says whether wall times that were left out before a period match.
func (t *Timetable) inGap(e *timed, p period) bool {
	if p.start == math.MinInt64 {
		return false
	}
	before := at(t.zone, p.start-1)
	return e.nextWall(p.start+before.offset) < p.start+p.offset
}
