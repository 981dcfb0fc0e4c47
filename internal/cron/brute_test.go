// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// wall is a wall time in fields.
type wall struct{ minute, hour, day, month, weekday int }

// matches says whether a wall time matches, field by field: what nextWall is checked against.
func matches(e *Expr, t time.Time) bool {
	return matchesWall(e, wall{t.Minute(), t.Hour(), t.Day(), int(t.Month()), int(t.Weekday())})
}

func matchesWall(e *Expr, w wall) bool {
	if !e.minute.has(w.minute) || !e.hour.has(w.hour) || !e.month.has(w.month) {
		return false
	}
	dom, dow := e.dom.has(w.day), e.dow.has(w.weekday)
	if e.dom.open || e.dow.open {
		return dom && dow
	}
	return dom || dow
}

// brute walks a zone minute by minute and says which minutes are slots. It looks up no transition:
// it sees that the wall clock jumped.
type brute struct {
	zone *time.Location
	last int64   // the wall time of the minute before
	seen []int64 // wall times of the last days
	gap  []wall  // wall times that were left out just before this minute
	wall wall    // of this minute
	was  bool    // the wall time was there before

	date wall // of the day that was asked for last
	day  int64
}

// history is how many wall times are remembered: of three days.
const history = 3 * minutesOfDay

func newBrute(zone *time.Location, start int64) *brute {
	b := &brute{zone: zone, seen: make([]int64, history)}
	for m := start - history; m < start; m++ {
		b.step(m)
	}
	return b
}

func (b *brute) step(minute int64) {
	_, offset := time.Unix(minute*60, 0).In(b.zone).Zone()
	w := (minute*60 + int64(offset)) / 60
	b.wall = b.fields(w)
	b.gap = b.gap[:0]
	if b.last != 0 {
		for skipped := b.last + 1; skipped < w; skipped++ {
			b.gap = append(b.gap, b.fields(skipped))
		}
	}
	b.was = b.seen[w%history] == w
	b.seen[w%history] = w
	b.last = w
}

// fields takes a wall time apart, given in minutes as if it were UTC.
func (b *brute) fields(w int64) wall {
	if day := w / minutesOfDay; day != b.day {
		d := time.Unix(day*minutesOfDay*60, 0).UTC()
		b.day, b.date = day, wall{day: d.Day(), month: int(d.Month()), weekday: int(d.Weekday())}
	}
	f, rest := b.date, int(w%minutesOfDay)
	f.hour, f.minute = rest/60, rest%60
	return f
}

// hit is what a text has to do with a minute, whatever the rules.
type hit struct{ now, left bool } // it matches the minute; it matches one that was left out before

func (b *brute) hit(e *Expr) hit {
	return hit{matchesWall(e, b.wall), slices.ContainsFunc(b.gap, func(w wall) bool { return matchesWall(e, w) })}
}

// slot says whether this minute is one.
func (b *brute) slot(e *timed, h hit) bool {
	return h.now && (e.both || !b.was) || e.runAfter && h.left
}

// texts meet the shifts of every zone.
var texts = [][]string{{"*/15 * * * *"}, {"30 0-3 * * *"}, {"0 0 * * *", "45 23 * * sat,sun"}, {"7 2 29 2 *"}, {"15 */2 13 * 5"}}

// tables are what each zone is checked with: all texts by each set of rules.
func tables(t *testing.T, zone string) []*Timetable {
	var all []*Timetable
	for _, rules := range []Rules{{}, {Gap: GapRunAfter, Repeat: RepeatBoth}, {Gap: GapSkip, Repeat: RepeatFirst}} {
		for _, texts := range texts {
			table, err := New(texts, zone, rules)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, table)
		}
	}
	return all
}

// check walks a zone from one time to another and compares each minute with Next.
func check(t *testing.T, zone string, from, to time.Time) {
	all := tables(t, zone)
	start, end := from.Unix()/60, to.Unix()/60
	b := newBrute(all[0].zone, start)
	due := make([]int64, len(all))
	for i, table := range all {
		due[i] = table.minuteAfter(start - 1)
	}
	hits := make([][]hit, len(texts)) // the same by all rules
	for i := range texts {
		hits[i] = make([]hit, len(texts[i]))
	}
	for m := start; m < end; m++ {
		b.step(m)
		for i := range texts {
			for k := range texts[i] {
				hits[i][k] = b.hit(&all[i].texts[k].Expr)
			}
		}
		for i, table := range all {
			want := false
			for k := range table.texts {
				want = want || b.slot(&table.texts[k], hits[i%len(texts)][k])
			}
			if got := due[i] == m; got != want {
				t.Errorf("%s, table %d: %v is a slot: %v, want %v", zone, i, time.Unix(m*60, 0).In(table.zone), got, want)
				return
			}
			if want {
				due[i] = table.minuteAfter(m)
			}
		}
	}
}

func (t *Timetable) minuteAfter(m int64) int64 {
	next, ok := t.Next(time.Unix(m*60, 0))
	if !ok {
		return never
	}
	return next.Unix() / 60
}

// zones are all of tzdata, without those that only are other names: by what their files say.
func zones(t *testing.T) []string {
	// A binary built without paths does not know where Go is.
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	byContent := map[string]string{}
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		content := fmt.Sprint(f.CRC32, f.UncompressedSize64)
		if name, ok := byContent[content]; !ok || f.Name < name {
			byContent[content] = f.Name
		}
	}
	var names []string
	for _, name := range byContent {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Ten years of each zone, minute by minute. The whole takes minutes: CRON_BRUTE=1, or make
// test-cron. Without it 12 zones, drawn anew each day, have the days around their jumps checked;
// with CRON_JUMPS=1 all zones.
//
// Mutations that were seen red here: cameBefore always false; RunAfter a minute late; the jump
// ahead whatever comes again (the whole alone saw that; the case of Juba has it now).
func TestNextIsWhatBruteForceFindsInEveryZone(t *testing.T) {
	names := zones(t)
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	if os.Getenv("CRON_BRUTE") == "" {
		seed := uint64(time.Now().Unix() / 86400)
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		if os.Getenv("CRON_JUMPS") == "" {
			names = append(names[:12], "Australia/Lord_Howe", "Africa/Casablanca")
		}
		for _, name := range names {
			for _, jump := range jumps(t, name, from, from.AddDate(10, 0, 0)) {
				check(t, name, jump.AddDate(0, 0, -1), jump.AddDate(0, 0, 2))
			}
		}
		return
	}
	t.Logf("%d zones", len(names))
	var wg sync.WaitGroup
	places := make(chan struct{}, runtime.NumCPU())
	if only := os.Getenv("CRON_ZONES"); only != "" {
		names = strings.Split(only, ",")
	}
	for _, name := range names {
		places <- struct{}{}
		wg.Go(func() {
			check(t, name, from, from.AddDate(10, 0, 0))
			<-places
		})
	}
	wg.Wait()
}

// jumps are the times at which the offset of a zone changes.
func jumps(t *testing.T, name string, from, to time.Time) (all []time.Time) {
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := from; ; {
		_, end := at.In(zone).ZoneBounds()
		if end.IsZero() || end.After(to) {
			return all
		}
		all, at = append(all, end), end
	}
}
