// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
)

// A clock that was a year ahead wrote the end of a run, or a decision. Failures since then count.
//
// mutation: newDraft that believes such an end, EndOf without tolerance, rewind that keeps
// failuresSince, or rewind after tally makes a case fail.
func TestAnEndByAClockThatIsAheadHidesNoFailures(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	hour := now.Truncate(time.Hour)
	ahead := metav1.NewTime(now.AddDate(1, 0, 0))
	run := func(hours int, phase Phase) Run {
		slot := hour.Add(time.Duration(hours) * time.Hour)
		return Run{Name: RunName("report", slot), Slot: slot, Phase: phase, Created: slot, Ended: slot.Add(time.Minute)}
	}
	good := run(-4, Succeeded)
	good.Ended = ahead.Time
	long := run(-5, Succeeded)
	long.Ended = now.Add(time.Second)
	failures := []Run{run(-3, Failed), run(-2, Failed), run(-1, Failed)}
	late := slices.Clone(failures)
	for i := range late {
		late[i].Ended = ahead.Time
	}
	for name, c := range map[string]struct {
		runs  []Run
		since *metav1.Time
		want  v1alpha1.SlotReason
	}{
		"a success that ended next year":         {append(failures, good), nil, v1alpha1.SlotPaused},
		"one that another decision believed":     {append(failures, good), &ahead, v1alpha1.SlotPaused},
		"a decision of next year":                {failures, &ahead, v1alpha1.SlotPaused},
		"a success after them":                   {append(failures, run(0, Succeeded)), &ahead, ""},
		"failures of next year, and a success":   {append(late, run(0, Succeeded)), nil, ""},
		"a success by a clock a little ahead":    {append(failures, long), nil, ""},
		"a pause that ended a little in advance": {failures, new(metav1.NewTime(now.Add(time.Second))), ""},
	} {
		s := &v1alpha1.Schedule{Status: &v1alpha1.ScheduleStatus{FailuresSince: c.since}}
		s.Name, s.Generation, s.CreationTimestamp = "report", 1, metav1.NewTime(now.Add(-time.Minute))
		s.Spec.Cron, s.Spec.PauseAfterFailures = []string{"0 * * * *"}, new(int32(3))
		table, err := cron.New(s.Spec.Cron, "", cron.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		d := Decide(Input{Now: now, Schedule: s, Table: table, Was: table, Runs: c.runs})
		if d.Status.Held != c.want {
			t.Errorf("%s: held %q with %d failures since %v", name, d.Status.Held, d.Status.Failures, d.Status.FailuresSince)
		}
	}
}

// What a newer operator wrote is not deleted by this one, and takes no place of what this one may
// delete. Its failure counts: how a run ended no version changes.
//
// mutation: prune that does not look at NeedsNewer, or failures that leaves such runs out.
func TestARunThatNeedsANewerOperatorTakesNoPlaceInTheHistory(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	run := func(hours int, phase Phase, newer bool) Run {
		slot := now.Truncate(time.Hour).Add(time.Duration(hours) * time.Hour)
		return Run{Name: RunName("report", slot), Slot: slot, Phase: phase, Created: slot, Ended: slot.Add(time.Minute), NeedsNewer: newer}
	}
	s := &v1alpha1.Schedule{}
	s.Name, s.Spec.SuccessfulRunsHistoryLimit, s.Spec.FailedRunsHistoryLimit = "report", new(int32(1)), new(int32(1))
	d := Decide(Input{Now: now, Schedule: s, Runs: []Run{
		run(-9, Succeeded, true), run(-8, Succeeded, false), run(-7, Succeeded, false), run(-6, Succeeded, true),
		run(-5, Failed, false), run(-4, Failed, true), run(-3, Failed, false), run(-2, Failed, true),
	}})
	var deleted []string
	for _, one := range d.Delete {
		deleted = append(deleted, one.Name)
	}
	if want := []string{run(-8, 0, false).Name, run(-5, 0, false).Name}; !slices.Equal(deleted, want) {
		t.Errorf("deletes %v, want %v", deleted, want)
	}
	if d.Status.Failures != 4 {
		t.Errorf("%d failed", d.Status.Failures)
	}
}
