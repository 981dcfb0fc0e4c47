// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"strings"
	"testing"
	"time"
)

func TestSlotsWhereClocksAreSet(t *testing.T) {
	for name, c := range map[string]struct {
		zone, from string
		texts      []string
		rules      Rules
		want       string // local times with their offset
	}{
		"a daily job in the hour that is left out runs once, after it": {
			"Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"30 2 * * *"},
			Rules{},
			"2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00",
		},
		"or not at all": {
			"Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"30 2 * * *"},
			Rules{Gap: GapSkip},
			"2026-03-30T02:30:00+02:00 2026-03-31T02:30:00+02:00",
		},
		"several slots that were left out are one": {
			"Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"*/20 2,4 * * *"},
			Rules{},
			"2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00 2026-03-29T04:20:00+02:00",
		},
		"a daily job in the hour that comes twice runs in the first": {
			"Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"30 2 * * *"},
			Rules{},
			"2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00",
		},
		"or in both": {
			"Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"30 2 * * *"},
			Rules{Repeat: RepeatBoth},
			"2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-26T02:30:00+01:00",
		},
		"a job of each half hour keeps its pace over the hour that is left out": {
			"Europe/Berlin", "2026-03-29T00:20:00Z",
			[]string{"10,40 * * * *"},
			Rules{},
			"2026-03-29T01:40:00+01:00 2026-03-29T03:10:00+02:00 2026-03-29T03:40:00+02:00",
		},
		"and over the hour that comes twice": {
			"Europe/Berlin", "2026-10-25T00:20:00Z",
			[]string{"10,40 * * * *"},
			Rules{},
			"2026-10-25T02:40:00+02:00 2026-10-25T02:10:00+01:00 2026-10-25T02:40:00+01:00 2026-10-25T03:10:00+01:00",
		},
		"which First does not allow": {
			"Europe/Berlin", "2026-10-25T00:20:00Z",
			[]string{"10,40 * * * *"},
			Rules{Repeat: RepeatFirst},
			"2026-10-25T02:40:00+02:00 2026-10-25T03:10:00+01:00",
		},
		"half an hour is left out on Lord Howe": {
			"Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"15 2 * * *"},
			Rules{},
			"2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00",
		},
		"half an hour comes twice on Lord Howe": {
			"Australia/Lord_Howe", "2026-04-04T00:00:00Z",
			[]string{"45 1 * * *"},
			Rules{Repeat: RepeatBoth},
			"2026-04-05T01:45:00+11:00 2026-04-05T01:45:00+10:30 2026-04-06T01:45:00+10:30",
		},
		"midnight is left out in Beirut": {
			"Asia/Beirut", "2026-03-28T00:00:00Z",
			[]string{"0 0 * * *"},
			Rules{},
			"2026-03-29T01:00:00+03:00 2026-03-30T00:00:00+03:00",
		},
		"the hour before midnight comes twice in Havana": {
			"America/Havana", "2026-10-31T12:00:00Z",
			[]string{"30 0 * * *"},
			Rules{},
			"2026-11-01T00:30:00-04:00 2026-11-02T00:30:00-05:00",
		},
		"a day was left out in Samoa": {
			"Pacific/Apia", "2011-12-29T12:00:00Z",
			[]string{"0 12 * * *"},
			Rules{},
			"2011-12-29T12:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00",
		},
		"and not missed with Skip": {
			"Pacific/Apia", "2011-12-29T12:00:00Z",
			[]string{"0 12 * * *"},
			Rules{Gap: GapSkip},
			"2011-12-29T12:00:00-10:00 2011-12-31T12:00:00+14:00",
		},
		"the evening comes twice in Juba, before a day that matches as little as the next four": {
			"Africa/Juba", "2021-01-31T12:00:00Z",
			[]string{"45 23 * * sun"},
			Rules{Repeat: RepeatBoth},
			"2021-01-31T23:45:00+03:00 2021-01-31T23:45:00+02:00 2021-02-07T23:45:00+02:00",
		},
		"clocks are set twice in a month in Casablanca": {
			"Africa/Casablanca", "2026-02-14T12:00:00Z",
			[]string{"30 2 * * *"},
			Rules{},
			"2026-02-15T02:30:00+01:00 2026-02-16T02:30:00Z",
		},
		"29 February is eight years away over 2100": {
			"", "2096-03-01T00:00:00Z", []string{"0 0 29 2 *"}, Rules{}, "2104-02-29T00:00:00Z",
		},
		"if both day fields are restricted one is enough": {
			"", "2026-02-11T00:00:00Z",
			[]string{"0 0 13 * 5"},
			Rules{},
			"2026-02-13T00:00:00Z 2026-02-20T00:00:00Z 2026-02-27T00:00:00Z 2026-03-06T00:00:00Z 2026-03-13T00:00:00Z",
		},
		"every second day of the month is a restriction, and does not open the field": {
			"", "2026-02-11T00:00:00Z", []string{"0 0 */10 * 5"}, Rules{}, "2026-02-13T00:00:00Z 2026-02-20T00:00:00Z 2026-02-21T00:00:00Z",
		},
		"slots of several texts at the same time are one": {
			"", "2026-02-11T00:00:00Z",
			[]string{"0 */6 * * *", "0 12 * * *"},
			Rules{},
			"2026-02-11T06:00:00Z 2026-02-11T12:00:00Z 2026-02-11T18:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := New(c.texts, c.zone, c.rules)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range strings.FieldsSeq(c.want) {
				next, ok := table.Next(at)
				if !ok || !isSlot(table, next) {
					t.Fatalf("nothing after %v", at)
				}
				got, at = append(got, next.Format(time.RFC3339)), next
			}
			if text := strings.Join(got, " "); !strings.HasPrefix(text, c.want) {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

// Mutation: the end of a period as ZoneBounds says it; Next did not return.
func TestTheLastDayOfALeapYearAfter2037(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"} {
		from := time.Date(2040, 12, 29, 0, 0, 0, 0, time.UTC)
		check(t, zone, from, from.AddDate(0, 0, 5))
		for _, jump := range jumps(t, zone, time.Date(2039, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2040, 12, 20, 0, 0, 0, 0, time.UTC)) {
			check(t, zone, jump.AddDate(0, 0, -1), jump.AddDate(0, 0, 2))
		}
	}
}

// isSlot says whether a time is a slot.
func isSlot(t *Timetable, at time.Time) bool {
	next, ok := t.Next(at.Add(-time.Second))
	return ok && next.Equal(at)
}

func TestNoTimeBetweenSlotsIsOne(t *testing.T) {
	table, err := New([]string{"0 * * * *"}, "Asia/Kolkata", Rules{})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]bool{"2026-01-01T00:30:00Z": true, "2026-01-01T00:00:00Z": false, "2026-01-01T00:30:01Z": false, "2026-01-01T00:30:59Z": false} {
		if when, err := time.Parse(time.RFC3339, at); err != nil || isSlot(table, when) != want {
			t.Errorf("%s is a slot: %v, want %v (%v)", at, !want, want, err)
		}
	}
	if next, _ := table.Next(time.Date(2026, 1, 1, 0, 29, 59, 999, time.UTC)); table.In(next).Format(time.RFC3339) != "2026-01-01T06:00:00+05:30" {
		t.Errorf("next is %v", next)
	}
}

// The bound is 20 us, for the worst text in a zone whose clocks are set twice a year.
func BenchmarkNext(b *testing.B) {
	for name, text := range map[string]string{"each minute": "* * * * *", "daily": "30 2 * * *", "leap day": "0 0 29 2 *", "friday 13": "0 0 13 * 5"} {
		b.Run(name, func(b *testing.B) {
			table, err := New([]string{text}, "Europe/Berlin", Rules{})
			if err != nil {
				b.Fatal(err)
			}
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				next, ok := table.Next(at)
				if !ok {
					b.Fatal("no slot")
				}
				if at = next; at.Year() > 2080 {
					at = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				}
			}
		})
	}
}
