// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
)

// A status that is behind has a slot waiting whose run was started.
//
// mutation: cancel that does not look which slots wait makes this fail.
func TestASlotThatWaitsDoesNotCancelItsOwnRun(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	slot, before := now.Truncate(time.Hour), now.Truncate(time.Hour).Add(-time.Hour)
	s := &v1alpha1.Schedule{Status: &v1alpha1.ScheduleStatus{Waiting: []metav1.Time{metav1.NewTime(slot)}}}
	s.Name, s.Spec.Overlap = "report", v1alpha1.OverlapCancelOther
	d := Decide(Input{Now: now, Schedule: s, Runs: []Run{{Name: "before", Slot: before}, {Name: "own", Slot: slot}}})
	if len(d.Cancel) != 1 || d.Cancel[0].Name != "before" {
		t.Errorf("cancels %+v", d.Cancel)
	}
}

// The owner of a schedule died shortly before a slot, the run of before ended meanwhile, and who
// takes over finds both: the slot that waited gets its run, and the next one its place.
//
// mutation: slots that are due decided before those that wait makes a case fail; so does that for
// CancelOther, which lets the older slot go.
func TestASlotThatWaitedMakesRoomForTheNext(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 5, 0, time.UTC)
	noon := now.Truncate(time.Hour)
	for overlap, c := range map[v1alpha1.OverlapPolicy]struct {
		waited, waiting, skipped int
	}{
		v1alpha1.OverlapBufferOne:   {1, 1, 0},
		v1alpha1.OverlapBufferAll:   {maxWaiting, maxWaiting, 0},
		v1alpha1.OverlapCancelOther: {1, 0, 1},
	} {
		s := &v1alpha1.Schedule{Status: &v1alpha1.ScheduleStatus{DecidedUntil: &metav1.Time{Time: noon.Add(-time.Hour)}}}
		for i := range c.waited {
			s.Status.Waiting = append(s.Status.Waiting, metav1.NewTime(noon.Add(time.Duration(i-c.waited)*time.Hour)))
		}
		oldest := s.Status.Waiting[0].Time
		s.Name, s.Spec.Overlap, s.Spec.Cron, s.Spec.CatchUp.WindowSeconds = "report", overlap, []string{"0 * * * *"}, 3600
		table, err := cron.New(s.Spec.Cron, "", cron.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		ended := Run{Name: "before", Slot: oldest.Add(-time.Hour), Phase: Succeeded, Ended: noon.Add(-8 * time.Second)}
		d := Decide(Input{Now: now, Schedule: s, Table: table, Was: table, Runs: []Run{ended}}).Status
		starts := oldest
		if c.skipped > 0 {
			starts = noon
		}
		if len(d.Starting) != 1 || !d.Starting[0].Time.Equal(starts) || len(d.Waiting) != c.waiting || len(d.Skipped) != c.skipped {
			t.Errorf("%s: starting %v, %d waiting, skipped %v", overlap, d.Starting, len(d.Waiting), d.Skipped)
		}
	}
}

// A slot is not lost for runs that are not there. One that is there counts.
//
// mutations: giveWay that asks for no run beside those that could not be created; that takes the
// last ones, or all of them; that takes what was not tried; lose that counts the slot as started.
func TestSlotsThatCouldNotStartMakeRoom(t *testing.T) {
	for name, c := range map[string]struct {
		overlap                     v1alpha1.OverlapPolicy
		tried, fresh, runs, waiting int
		lost                        int  // of those that were tried
		begins, waits               bool // the slot that has come
	}{
		"nothing else":                       {v1alpha1.OverlapSkip, 1, 0, 0, 0, 1, true, false},
		"a run is under way":                 {v1alpha1.OverlapSkip, 1, 0, 1, 0, 0, false, false},
		"one is not tried yet":               {v1alpha1.OverlapSkip, 1, 1, 0, 0, 0, false, false},
		"left from Allow":                    {v1alpha1.OverlapSkip, 3, 0, 0, 0, 3, true, false},
		"there is room":                      {v1alpha1.OverlapAllow, 99, 0, 0, 0, 0, true, false},
		"there is room for one":              {v1alpha1.OverlapAllow, 100, 0, 0, 0, 1, true, false},
		"a hundred runs":                     {v1alpha1.OverlapAllow, 10, 0, 100, 0, 0, false, false},
		"some are runs":                      {v1alpha1.OverlapAllow, 50, 0, 50, 0, 1, true, false},
		"it may wait":                        {v1alpha1.OverlapBufferOne, 1, 0, 0, 0, 0, false, true},
		"another one waits":                  {v1alpha1.OverlapBufferOne, 1, 0, 0, 1, 1, false, true},
		"another one waits for a run":        {v1alpha1.OverlapBufferOne, 1, 0, 1, 1, 0, false, false},
		"a hundred wait":                     {v1alpha1.OverlapBufferAll, 1, 0, 0, 100, 1, false, true},
		"it waits, and the run is cancelled": {v1alpha1.OverlapCancelOther, 1, 0, 1, 1, 0, false, true},
	} {
		s, table, noon := hourly(t)
		s.Spec.Overlap, s.Status.Started = c.overlap, int64(c.tried+c.fresh)
		in := Input{Now: noon.Add(time.Hour), Schedule: s, Table: table, Was: table, Tried: map[int64]string{}}
		n := c.tried + c.fresh + c.runs + c.waiting
		before := func(i int) time.Time { return noon.Add(time.Duration(i-n) * time.Hour) }
		for i := range n {
			switch slot := before(i); {
			case i < c.tried:
				in.Tried[Minute(slot)] = "no answer"
				fallthrough
			case i < c.tried+c.fresh:
				s.Status.Starting = append(s.Status.Starting, metav1.NewTime(slot))
			case i < c.tried+c.fresh+c.runs:
				in.Runs = append(in.Runs, Run{Name: RunName(s.Name, slot), Slot: slot})
			default:
				s.Status.Waiting = append(s.Status.Waiting, metav1.NewTime(slot))
			}
		}
		d := Decide(in)
		lost := 0
		for _, one := range d.Skipped {
			if one.Reason == v1alpha1.SlotStartFailed {
				lost += int(one.Count)
				if one.Message != "no answer" || !one.From.Time.Equal(before(0)) {
					t.Errorf("%s: %+v", name, one)
				}
			}
		}
		begins, waits := has(d.Status.Starting, in.Now), has(d.Status.Waiting, in.Now)
		if lost != c.lost || begins != c.begins || waits != c.waits {
			t.Errorf("%s: %d are lost, it begins: %t, waits: %t, %+v", name, lost, begins, waits, d.Skipped)
		}
		if begun := int(d.Status.Started) - len(d.Status.Starting); begun != 0 {
			t.Errorf("%s: %d slots more count as started than are", name, begun)
		}
		if active := c.runs + len(d.Status.Starting) - (c.tried - lost); int(d.Status.Active) != active {
			t.Errorf("%s: active %d, want %d", name, d.Status.Active, active)
		}
	}
}

// Only slots that MayGiveWay told the caller to look up make room: the answer to a creation may be
// lost, and then the run is there. A slot is not lost for want of a look, either.
//
// mutation: MayGiveWay without what the same decision starts before.
func TestASlotMakesRoomOnlyWhereItsRunIsLookedUp(t *testing.T) {
	for runs := 85; runs <= maxActive; runs++ {
		for _, policy := range []v1alpha1.CatchUpPolicy{v1alpha1.CatchUpAll, v1alpha1.CatchUpLatest} {
			s, table, noon := hourly(t)
			s.Spec.Overlap, s.Spec.CatchUp = v1alpha1.OverlapAllow, v1alpha1.CatchUp{Policy: policy, Max: 10, WindowSeconds: 86_400}
			in := Input{Now: noon.Add(10 * time.Hour), Schedule: s, Table: table, Was: table, Tried: map[int64]string{}}
			for i := range runs {
				slot := noon.Add(time.Duration(i-runs) * time.Hour)
				if i >= 12 {
					in.Runs = append(in.Runs, Run{Name: RunName(s.Name, slot), Slot: slot})
					continue
				}
				in.Tried[Minute(slot)] = "no answer"
				s.Status.Starting = append(s.Status.Starting, metav1.NewTime(slot))
			}
			lost, want, offers := map[v1alpha1.SlotReason]int64{}, 0, 1
			if policy == v1alpha1.CatchUpAll {
				offers = 10
			}
			want = max(0, runs+offers-maxActive)
			for _, one := range Decide(in).Skipped {
				lost[one.Reason] += one.Count
			}
			if lost[v1alpha1.SlotStartFailed] != int64(want) || lost[v1alpha1.SlotOverlap] > 0 {
				t.Errorf("%d runs, %s: %v, want %d", runs, policy, lost, want)
			}
			if looks := MayGiveWay(&in, len(in.Runs)); looks != (want > 0) {
				t.Errorf("%d runs, %s: %d make room, and they are looked up: %t", runs, policy, want, looks)
			}
		}
	}
}
