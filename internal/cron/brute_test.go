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

// matches says whether a wall time matches, field by field: what nextWall is checked against.
func matches(e *Expr, t time.Time) bool {
	if !e.minute.has(t.Minute()) || !e.hour.has(t.Hour()) || !e.month.has(int(t.Month())) {
		return false
	}
	dom, dow := e.dom.has(t.Day()), e.dow.has(int(t.Weekday()))
	if e.dom.open || e.dow.open {
		return dom && dow
	}
	return dom || dow
}

// brute walks a zone minute by minute and says which minutes are slots. It looks up no transition:
// it sees that the wall clock jumped.
type brute struct {
	zone *time.Location
	last int64       // the wall time of the minute before
	seen []int64     // wall times of the last days
	gap  []time.Time // wall times that were left out just before this minute
	wall time.Time   // of this minute, as UTC
	was  bool        // the wall time was there before
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
	t := time.Unix(minute*60, 0).In(b.zone)
	b.wall = time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	w := b.wall.Unix() / 60
	b.gap = b.gap[:0]
	if b.last != 0 {
		for skipped := b.last + 1; skipped < w; skipped++ {
			b.gap = append(b.gap, time.Unix(skipped*60, 0).UTC())
		}
	}
	b.was = b.seen[w%history] == w
	b.seen[w%history] = w
	b.last = w
}

// slot says whether this minute is one.
func (b *brute) slot(e *timed) bool {
	if matches(&e.Expr, b.wall) && (e.both || !b.was) {
		return true
	}
	return e.runAfter && slices.ContainsFunc(b.gap, func(t time.Time) bool { return matches(&e.Expr, t) })
}

// tables are what each zone is checked with: texts that meet the shifts of every zone.
func tables(t *testing.T, zone string) []*Timetable {
	var all []*Timetable
	for _, rules := range []Rules{{}, {Gap: GapRunAfter, Repeat: RepeatBoth}, {Gap: GapSkip, Repeat: RepeatFirst}} {
		for _, texts := range [][]string{{"*/15 * * * *"}, {"30 0-3 * * *"}, {"0 0 * * *", "45 23 * * sat,sun"}, {"7 2 29 2 *"}, {"15 */2 13 * 5"}} {
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
	for m := start; m < end; m++ {
		b.step(m)
		for i, table := range all {
			want := slices.ContainsFunc(table.texts, func(e timed) bool { return b.slot(&e) })
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
