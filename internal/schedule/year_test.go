// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// cluster is one schedule on an API server: its status has a version, and runs have a name.
type cluster struct {
	t        *testing.T
	rng      *rand.Rand
	now      time.Time
	schedule *v1alpha1.Schedule
	version  int
	tables   map[string]*cron.Timetable
	runs     map[int64]*Run
	length   map[int64]time.Duration
	started  map[int64]int // how often the run of a slot came to be
	reasons  map[int64][]v1alpha1.SlotReason
	history  []version // of the timing
	tried    map[int64]string
}

// version is a timing, and from when to when it counted.
type version struct {
	table    *cron.Timetable
	from, to time.Time
}

func (c *cluster) table(timing *v1alpha1.ScheduleTiming) *cron.Timetable {
	if timing == nil {
		return nil
	}
	key := fmt.Sprint(timing.Cron, timing.TimeZone, timing.DST)
	if c.tables[key] == nil {
		table, err := cron.New(timing.Cron, timing.TimeZone, cron.Rules{Gap: cron.Gap(timing.DST.Gap), Repeat: cron.Repeat(timing.DST.Repeat)})
		if err != nil {
			c.t.Fatal(err)
		}
		c.tables[key] = table
	}
	return c.tables[key]
}

// observe is what an operator reads, at some version.
func (c *cluster) observe() (Input, int) {
	in := Input{Now: c.now, Schedule: c.schedule.DeepCopy(), Table: c.table(&c.schedule.Spec.ScheduleTiming)}
	if c.schedule.Status != nil {
		in.Was = c.table(c.schedule.Status.Timing)
	}
	for _, r := range c.runs {
		run := *r
		if end := run.Slot.Add(c.length[Minute(run.Slot)]); run.Phase == Active && !end.After(c.now) {
			r.Phase, r.Ended = Succeeded, end
			if c.rng.IntN(4) == 0 {
				r.Phase = Failed
			}
			run = *r
		}
		in.Runs = append(in.Runs, run)
	}
	in.Tried = maps.Clone(c.tried)
	maps.DeleteFunc(in.Tried, func(m int64, _ string) bool { return c.runs[m] != nil }) // it is looked up
	return in, c.version
}

// write stores a status; not ok: another was stored since it was read.
func (c *cluster) write(d Decision, read int) bool {
	if c.version != read {
		return false
	}
	c.version++
	was := c.schedule.Status
	c.schedule.Status = d.Status
	if was == nil || was.Timing == nil {
		c.history = append(c.history, version{table: c.table(d.Status.Timing), from: c.schedule.CreationTimestamp.Time})
	} else if fmt.Sprint(was.Timing) != fmt.Sprint(d.Status.Timing) {
		c.history[len(c.history)-1].to = c.now
		c.history = append(c.history, version{table: c.table(d.Status.Timing), from: c.now})
	}
	for _, s := range d.Skipped {
		c.skipped(s, was)
	}
	if len(d.Skipped) > 0 { // of the others nothing has changed
		all := d.Status.Skipped
		for _, s := range all[max(0, len(all)-len(d.Skipped)-1):] {
			c.told(s)
		}
	}
	return true
}

// told is that a range in status is one of some timing.
func (c *cluster) told(s v1alpha1.SkippedSlots) {
	if !slices.ContainsFunc(c.history, func(v version) bool { return slotsOf(v.table, s) == s.Count }) {
		c.t.Errorf("%s: status has a range of no timing: %+v", c.schedule.Name, s)
	}
}

// slotsOf is how many slots a timing has in a range; 0: the ends are none.
func slotsOf(table *cron.Timetable, s v1alpha1.SkippedSlots) (n int64) {
	at := s.From.Add(-time.Second)
	for {
		slot, ok := table.Next(at)
		switch {
		case !ok || slot.After(s.To.Time) || n == 0 && !slot.Equal(s.From.Time):
			return 0
		case slot.Equal(s.To.Time):
			return n + 1
		}
		n, at = n+1, slot
	}
}

func (c *cluster) skipped(s v1alpha1.SkippedSlots, was *v1alpha1.ScheduleStatus) {
	table := c.table(&c.schedule.Spec.ScheduleTiming)
	if was != nil && was.Timing != nil {
		table = c.table(was.Timing)
	}
	n := int64(0)
	if s.Count == 1 { // also of a timing of before, that waited
		c.reasons[Minute(s.From.Time)] = append(c.reasons[Minute(s.From.Time)], s.Reason)
		return
	}
	for at := s.From.Add(-time.Second); ; n++ {
		slot, ok := table.Next(at)
		if !ok || slot.After(s.To.Time) {
			break
		}
		c.reasons[Minute(slot)] = append(c.reasons[Minute(slot)], s.Reason)
		at = slot
	}
	if n != s.Count {
		c.t.Errorf("%s: a range says %d slots and has %d: %+v", c.schedule.Name, s.Count, n, s)
	}
}

// act does what a decision says; it may die in the middle.
func (c *cluster) act(d Decision, dies bool) {
	for _, slot := range d.Create {
		if dies && c.rng.IntN(2) == 0 {
			return
		}
		if delete(c.tried, Minute(slot)); c.rng.IntN(10) == 0 {
			c.tried[Minute(slot)] = "the webhook does not answer"
			continue
		}
		if c.runs[Minute(slot)] == nil { // else: AlreadyExists
			c.runs[Minute(slot)] = &Run{Name: RunName(c.schedule.Name, slot), Slot: slot}
			c.started[Minute(slot)]++
			c.length[Minute(slot)] = time.Duration(c.rng.IntN(7200)) * time.Second
			if c.rng.IntN(20) == 0 {
				c.length[Minute(slot)] = time.Duration(c.rng.IntN(72)) * time.Hour
			}
		}
	}
	for _, one := range d.Cancel {
		for m, r := range c.runs {
			if r.Name == one.Name {
				c.length[m] = min(c.length[m], c.now.Sub(r.Slot)+time.Minute)
				r.Cancelled = true
			}
		}
	}
	for _, one := range d.Delete {
		for m, r := range c.runs {
			if r.Name == one.Name {
				delete(c.runs, m)
			}
		}
	}
}

// pass is one of one operator, or of two at the same time.
func (c *cluster) pass() Decision {
	if c.rng.IntN(50) == 0 {
		clear(c.tried) // another process
	}
	in, read := c.observe()
	d := Decide(in)
	if c.rng.IntN(10) == 0 { // another, which has not heard of a run yet, is first to write
		stale := in
		stale.Runs = stale.Runs[:max(len(stale.Runs)-1, 0)]
		other := Decide(stale)
		if c.write(other, read) {
			c.act(other, c.rng.IntN(2) == 0)
		}
	}
	if c.rng.IntN(50) == 0 {
		return d // it dies before it writes
	}
	if c.write(d, read) {
		c.act(d, c.rng.IntN(50) == 0)
	}
	return d
}

// user edits the spec now and then.
func (c *cluster) user() {
	spec := &c.schedule.Spec
	switch c.rng.IntN(8) {
	case 0:
		spec.Suspend = !spec.Suspend
	case 1:
		spec.Cron = texts[c.rng.IntN(len(texts))]
	case 2:
		spec.TimeZone = zones[c.rng.IntN(len(zones))]
	case 3:
		spec.Overlap = overlaps[c.rng.IntN(len(overlaps))]
	case 4:
		spec.Suspend = false
	default:
		spec.JitterSeconds = int32(c.rng.IntN(900))
	}
	c.schedule.Generation++
	c.version++
}

var (
	texts    = [][]string{{"0 */4 * * *"}, {"30 2 * * *"}, {"15 6 * * 1-5", "0 0 1 * *"}, {"10 */8 * * *", "10 3 * * *"}, {"0 * * * *"}}
	zones    = []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "UTC"}
	overlaps = []v1alpha1.OverlapPolicy{v1alpha1.OverlapSkip, v1alpha1.OverlapBufferOne, v1alpha1.OverlapBufferAll, v1alpha1.OverlapCancelOther, v1alpha1.OverlapAllow}
)

func newCluster(t *testing.T, rng *rand.Rand, name string, from time.Time) *cluster {
	s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(from)}}
	s.Spec.Cron, s.Spec.TimeZone = texts[rng.IntN(len(texts))], zones[rng.IntN(len(zones))]
	s.Spec.Overlap = overlaps[rng.IntN(len(overlaps))]
	s.Spec.CatchUp = v1alpha1.CatchUp{WindowSeconds: []int32{10, 600, 3600, 86400}[rng.IntN(4)], Policy: v1alpha1.CatchUpLatest, Max: 3}
	if rng.IntN(2) == 0 {
		s.Spec.CatchUp.Policy = v1alpha1.CatchUpAll
	}
	s.Spec.JitterSeconds = int32(rng.IntN(2) * 300)
	if rng.IntN(4) == 0 {
		s.Spec.PauseAfterFailures = new(int32(3))
	}
	return &cluster{
		t: t, rng: rng, now: from, schedule: s, tables: map[string]*cron.Timetable{},
		runs: map[int64]*Run{}, length: map[int64]time.Duration{}, started: map[int64]int{}, reasons: map[int64][]v1alpha1.SlotReason{},
		tried: map[int64]string{},
	}
}

// year plays one, and then lets all that is held or waits be decided.
func (c *cluster) year() {
	end := c.now.AddDate(1, 0, 0)
	for c.now.Before(end) {
		d := c.pass()
		next := c.now.Add(time.Duration(1+c.rng.IntN(40_000)) * time.Second)
		if !d.Wake.IsZero() && d.Wake.Before(next) && d.Wake.After(c.now) {
			next = d.Wake
		}
		if c.schedule.Spec.Suspend && c.rng.IntN(30) == 0 {
			c.user()
		}
		switch c.rng.IntN(400) {
		case 0:
			c.now = c.now.Add(time.Duration(c.rng.IntN(200)) * time.Hour) // nobody is there
		case 1:
			c.user()
		default:
			c.now = next
		}
	}
	c.schedule.Spec.Suspend, c.schedule.Spec.PauseAfterFailures = false, nil
	c.schedule.Generation++
	c.version++
	for range 5000 {
		d := c.pass()
		c.now = c.now.Add(time.Minute)
		if s := c.schedule.Status; len(s.Waiting)+len(s.Starting) == 0 && !d.Again && s.Held == "" {
			break
		}
	}
}

// check is that each slot has one run, or one reason, and that nothing else has.
func (c *cluster) check() (slots, runs int) {
	status := c.schedule.Status
	for i, v := range c.history {
		until := status.DecidedUntil.Time
		if i < len(c.history)-1 {
			until = v.to
		}
		for at := v.from; ; {
			slot, ok := v.table.Next(at)
			if !ok || slot.After(until) {
				break
			}
			m := Minute(slot)
			waits := slices.ContainsFunc(append(status.Waiting, status.Starting...), func(t metav1.Time) bool { return t.Time.Equal(slot) })
			if n := c.started[m] + len(c.reasons[m]); n != 1 && (!waits || n != 0) {
				c.t.Errorf("%s: slot %v has %d runs, and the reasons %v (waits: %v)", c.schedule.Name, slot, c.started[m], c.reasons[m], waits)
			}
			runs += c.started[m]
			delete(c.started, m)
			delete(c.reasons, m)
			slots, at = slots+1, slot
		}
	}
	if len(c.started)+len(c.reasons) > 0 {
		c.t.Errorf("%s: what is no slot has runs %v and reasons %v", c.schedule.Name, c.started, c.reasons)
	}
	return slots, runs
}

// A hundred schedules over a year, edited, suspended and paused, by operators that die before and
// after a write and between creations, that are away for days, or are two. One creation of ten
// fails.
//
// Mutations that were seen red here: creations before the write of status; a write without its
// version; slots that wait forgotten at an edit; slots of a suspension left out when it ends; an
// edit judged by the new timing; late slots dropped without a reason; slots that make room without
// a reason, or that are created all the same.
func TestAYearHasOneRunOrOneReasonForEachSlot(t *testing.T) {
	norace.Only(t)
	seed := uint64(time.Now().Unix() / 86400)
	t.Logf("seed %d", seed)
	slots, runs := 0, 0
	for i := range 100 {
		c := newCluster(t, rand.New(rand.NewPCG(seed, uint64(i))), fmt.Sprintf("sched-%d", i), time.Date(2026, 1, 5, 0, 0, 20, 0, time.UTC))
		c.year()
		n, r := c.check()
		slots, runs = slots+n, runs+r
		if t.Failed() {
			break
		}
	}
	t.Logf("%d slots, %d runs", slots, runs)
	if slots < 50_000 || runs < slots/6 {
		t.Errorf("%d slots with %d runs show too little", slots, runs)
	}
}
