// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
)

// What cannot be created was not started.
//
// mutations: unstart that leaves Backfill.Started, or that takes back slots of no backfill.
func TestABackfillCountsWhatItStarted(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	from, to := metav1.NewTime(now.Add(-5*time.Hour)), metav1.NewTime(now.Add(-2*time.Hour))
	slot := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		slot   time.Time
		before time.Time
		want   int64
	}{
		"a slot of it":           {slot, now, 0},
		"one before":             {slot.Add(-time.Hour), now, 1},
		"one after":              {slot.Add(3 * time.Hour), now, 1},
		"one of the times since": {slot, slot.Add(-time.Second), 1},
	} {
		s := &v1alpha1.Schedule{Status: &v1alpha1.ScheduleStatus{
			Started: 1, Starting: []metav1.Time{metav1.NewTime(c.slot)},
			Backfill: &v1alpha1.BackfillStatus{Backfill: v1alpha1.Backfill{From: from, To: to}, DoneUntil: to, Before: metav1.NewTime(c.before), Started: 1},
		}}
		s.Name, s.Spec.Backfill = "report", &s.Status.Backfill.Backfill
		d := Decide(Input{Now: now, Schedule: s, Failed: map[int64]Failure{Minute(c.slot): {Reason: v1alpha1.SlotStartFailed}}})
		if d.Status.Backfill.Started != c.want || d.Status.Started != 0 {
			t.Errorf("%s: %+v", name, d.Status.Backfill)
		}
	}
}

// Status has whole seconds, and a user may write fractions of one. It is one backfill all the same,
// or the slots whose runs were deleted meanwhile would be started again, and again.
//
// A slot before the fraction is none of it.
//
// mutations: backfill that begins at the second of the fraction, or after a slot at from, or that
// compares what the user wrote, or stores it, or asStored without one of its times makes this fail.
func TestABackfillOfFractionsOfASecondIsDoneOnce(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	for name, at := range map[string]struct {
		from, to time.Duration
		want     string
	}{
		"from":                    {500 * time.Millisecond, 0, "map[10:00:00:1 11:00:00:1]"},
		"to":                      {0, 500 * time.Millisecond, "map[10:00:00:1 11:00:00:1]"},
		"from, just after a slot": {59*time.Minute + 30*time.Second + 500*time.Millisecond, 0, "map[11:00:00:1]"},
		"from, at a slot":         {59*time.Minute + 30*time.Second, 0, "map[10:00:00:1 11:00:00:1]"},
	} {
		s := &v1alpha1.Schedule{Spec: v1alpha1.ScheduleSpec{
			ScheduleTiming: v1alpha1.ScheduleTiming{Cron: []string{"0 * * * *"}},
			Backfill: &v1alpha1.Backfill{
				From: metav1.NewTime(now.Add(-3 * time.Hour).Truncate(time.Second).Add(at.from)),
				To:   metav1.NewTime(now.Add(-time.Hour).Add(at.to)),
			},
		}}
		s.Name, s.CreationTimestamp = "report", metav1.NewTime(now.Add(-time.Minute))
		table, err := cron.New(s.Spec.Cron, "", cron.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		started := map[string]int{}
		var runs []Run // those of the decision before; the others are gone
		for i := range 10 {
			d := Decide(Input{Now: now.Add(time.Duration(i) * time.Minute), Schedule: s, Table: table, Was: table, Runs: runs})
			runs = nil
			for _, slot := range d.Create {
				started[slot.UTC().Format(time.TimeOnly)]++
				runs = append(runs, Run{Name: RunName(s.Name, slot), Slot: slot, Phase: Succeeded, Ended: now})
			}
			stored, err := json.Marshal(d.Status)
			if err != nil {
				t.Fatal(err)
			}
			s.Status = &v1alpha1.ScheduleStatus{}
			if err := json.Unmarshal(stored, s.Status); err != nil {
				t.Fatal(err)
			}
		}
		if fmt.Sprint(started) != at.want || s.Status.Backfill.FinishedAt == nil {
			t.Errorf("a fraction in %s: started %v, %+v", name, started, s.Status.Backfill)
		}
	}
}

// With overlap Allow ten runs of a backfill are under way at a time, whatever else is. Otherwise it
// waits for other runs, too.
//
// mutation: a backfill that counts ordinary runs, or not those that are starting, or goes beyond
// maxActive, makes a case fail.
func TestABackfillIsBoundedByItsOwnRuns(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	hour := now.Truncate(time.Hour)
	for name, c := range map[string]struct {
		overlap           v1alpha1.OverlapPolicy
		ordinary, of, due int // runs under way, those of the backfill, and slots of it that are starting
		want              int // slots of it that are started now
	}{
		"many others":                  {v1alpha1.OverlapAllow, 12, 0, 0, 10},
		"some of its own":              {v1alpha1.OverlapAllow, 12, 3, 2, 5},
		"enough of its own":            {v1alpha1.OverlapAllow, 0, 10, 0, 0},
		"as many as may be":            {v1alpha1.OverlapAllow, maxActive - 4, 1, 1, 2},
		"one other, one after another": {v1alpha1.OverlapSkip, 1, 0, 0, 0},
		"none, one after another":      {v1alpha1.OverlapSkip, 0, 0, 0, 1},
	} {
		s := &v1alpha1.Schedule{Status: &v1alpha1.ScheduleStatus{DecidedUntil: &metav1.Time{Time: hour}}}
		s.Name, s.Spec.Overlap, s.Spec.Cron = "report", c.overlap, []string{"* * * * *"}
		from := hour.AddDate(0, 0, -1)
		s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(from), To: metav1.NewTime(from.Add(time.Hour))}
		table, err := cron.New(s.Spec.Cron, "", cron.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		var runs []Run
		for i := range c.ordinary {
			runs = append(runs, Run{Slot: hour.Add(-time.Duration(i) * time.Minute)})
		}
		for i := range c.of {
			runs = append(runs, Run{Slot: from.Add(time.Duration(i) * time.Minute)})
		}
		for i := range c.due {
			s.Status.Starting = append(s.Status.Starting, metav1.NewTime(from.Add(time.Duration(c.of+i)*time.Minute)))
		}
		d := Decide(Input{Now: hour, Schedule: s, Table: table, Was: table, Runs: runs})
		if n := len(d.Create) - c.due; n != c.want || d.Status.Backfill.Started != int64(c.want) {
			t.Errorf("%s: %d slots of the backfill are started, want %d", name, n, c.want)
		}
	}
}
