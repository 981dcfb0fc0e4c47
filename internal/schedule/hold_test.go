// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
)

// hourly is a schedule that decided its slots until noon, its table, and noon.
func hourly(t *testing.T) (*v1alpha1.Schedule, *cron.Timetable, time.Time) {
	t.Helper()
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	s := &v1alpha1.Schedule{Status: &v1alpha1.ScheduleStatus{DecidedUntil: new(metav1.NewTime(noon))}}
	s.Name, s.Generation = "report", 1
	s.Spec.Cron, s.Spec.CatchUp.WindowSeconds = []string{"0 * * * *"}, 3600
	s.Status.Timing = s.Spec.ScheduleTiming.DeepCopy()
	table, err := cron.New(s.Spec.Cron, "", cron.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return s, table, noon
}

// An end a month later would start slots of a month ago, and nobody expects that.
//
// mutations: enter that keeps the slots which wait for one of the reasons, or lets them go where
// spec is invalid, which a user mends.
func TestSlotsThatWaitGetTheReasonForWhichAScheduleIsHeld(t *testing.T) {
	for held, hold := range map[v1alpha1.SlotReason]func(*Input){
		v1alpha1.SlotSuspended: func(in *Input) { in.Schedule.Spec.Suspend = true },
		v1alpha1.SlotPaused:    func(in *Input) { in.Schedule.Status.PausedGeneration = in.Schedule.Generation },
		v1alpha1.SlotStopped:   func(in *Input) { in.Stop = true },
		"":                     func(in *Input) { in.Table = nil },
	} {
		s, table, noon := hourly(t)
		s.Spec.Overlap = v1alpha1.OverlapBufferAll
		for i := range 3 {
			s.Status.Waiting = append(s.Status.Waiting, metav1.NewTime(noon.Add(time.Duration(i-2)*time.Hour)))
		}
		before := Run{Name: "before", Slot: noon.Add(-3 * time.Hour)}
		in := Input{Now: noon.Add(time.Minute), Schedule: s, Table: table, Was: table, Runs: []Run{before}}
		hold(&in)
		s.Status = Decide(in).Status
		s.Spec.Suspend = false
		s.Generation++
		d := Decide(Input{Now: noon.AddDate(0, 1, 0), Schedule: s, Table: table, Was: table})
		if held == "" {
			if len(d.Create) == 0 || !d.Create[0].Equal(noon.Add(-2*time.Hour)) {
				t.Errorf("once spec is valid it starts %v, skipped %+v", d.Create, s.Status.Skipped)
			}
			continue
		}
		for _, slot := range d.Create {
			if !slot.After(noon) {
				t.Errorf("%s: it starts the slot %v a month later", held, slot)
			}
		}
		if len(s.Status.Skipped) != 1 || s.Status.Skipped[0].Reason != held || s.Status.Skipped[0].Count != 3 {
			t.Errorf("%s: %+v", held, s.Status.Skipped)
		}
	}
}

// A user who does not mend a spec suspends it instead: that is what is to be seen, and told.
//
// mutations: hold that asks for the table first; ready that does not say what is wrong; hold that
// has a pause before what is wrong.
func TestASuspendedScheduleThatIsNotValidIsSuspended(t *testing.T) {
	s, table, noon := hourly(t)
	s.Spec.Suspend, s.Status.Waiting = true, []metav1.Time{metav1.NewTime(noon.Add(-time.Hour))}
	in := Input{Now: noon.Add(time.Minute), Schedule: s, Was: table, Invalid: "spec.cron[0]"}
	d := Decide(in)
	ready := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionReady)
	if d.Status.Held != v1alpha1.SlotSuspended || d.Status.Waiting != nil || ready.Reason != v1alpha1.ReasonScheduleSuspended || !strings.Contains(ready.Message, "spec.cron[0]") {
		t.Errorf("%+v", d.Status)
	}
	s.Spec.Suspend, s.Status.PausedGeneration = false, s.Generation
	if d := Decide(in); d.Status.Held != v1alpha1.SlotInvalidSpec {
		t.Errorf("not suspended, but paused: %s", d.Status.Held)
	}
}

// mutations: advance that decides what is due before what waits, as the schedule begins to be held,
// or as it is held for another reason.
func TestSlotsThatWaitAndThoseThatAreDueAreInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		held v1alpha1.SlotReason
		want string
	}{"it ran": {"", "Suspended x 3"}, "it was not valid": {v1alpha1.SlotInvalidSpec, "Suspended x 2, InvalidSpec x 1"}} {
		s, table, noon := hourly(t)
		s.Spec.Suspend, s.Status.Held = true, c.held
		s.Status.DecidedUntil = new(metav1.NewTime(noon.Add(-time.Hour)))
		s.Status.Waiting = []metav1.Time{metav1.NewTime(noon.Add(-2 * time.Hour)), metav1.NewTime(noon.Add(-time.Hour))}
		d := Decide(Input{Now: noon.Add(time.Minute), Schedule: s, Table: table, Was: table})
		var got []string
		for _, one := range d.Status.Skipped {
			got = append(got, fmt.Sprintf("%s x %d", one.Reason, one.Count))
		}
		if all := strings.Join(got, ", "); all != c.want || d.Status.NotStarted != 3 {
			t.Errorf("%s: %s; want %s", name, all, c.want)
		}
	}
}

// Slots that waited are one range only if no other is between them, and they are of one timing.
//
// mutations: skip that makes a range of all that have the same reason, and follows that does not
// look whether the first is a slot.
func TestSlotsApartAreNoRange(t *testing.T) {
	s, table, noon := hourly(t)
	s.Spec.Suspend = true
	const ofAnEarlierTiming = -150
	for _, minutes := range []int{-240, ofAnEarlierTiming, -120, -60} {
		s.Status.Waiting = append(s.Status.Waiting, metav1.NewTime(noon.Add(time.Duration(minutes)*time.Minute)))
	}
	d := Decide(Input{Now: noon.Add(time.Minute), Schedule: s, Table: table, Was: table})
	if all := d.Status.Skipped; len(all) != 3 || all[0].Count != 1 || all[1].Count != 1 || all[2].Count != 2 {
		t.Errorf("%+v", all)
	}
}

// Who removes the failed runs of a pause does not end it: it says still how it came to be.
//
// mutations: tally that counts anew during a pause; one that leaves out what fails meanwhile.
func TestAPauseSaysHowManyRunsFailedThoughTheyAreGone(t *testing.T) {
	s, table, noon := hourly(t)
	s.Spec.PauseAfterFailures = new(int32(2))
	failed := func(n int) (runs []Run) {
		for i := range n {
			runs = append(runs, Run{Slot: noon.Add(time.Duration(i-n) * time.Hour), Phase: Failed, Ended: noon.Add(-time.Minute)})
		}
		return runs
	}
	for _, c := range []struct {
		there int
		want  string
	}{{2, "2 runs"}, {3, "3 runs"}, {0, "3 runs"}} {
		s.Status = Decide(Input{Now: noon.Add(time.Minute), Schedule: s, Table: table, Was: table, Runs: failed(c.there)}).Status
		ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		if ready.Reason != v1alpha1.ReasonPaused || !strings.HasPrefix(ready.Message, c.want) {
			t.Errorf("with %d failed runs there: %s: %s", c.there, ready.Reason, ready.Message)
		}
	}
}

// A range of slots is of one timing: else its count is not that of the slots between its ends.
//
// mutations: follows that looks at the end of a range alone; enter that leaves decidedUntil at the
// end of a range, at an edit in its minute or by a clock that was set back.
func TestARangeOfSlotsIsOfOneTiming(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"some time after the last slot": 5 * time.Minute, "at the last slot": 0, "by a clock that was set back": -time.Hour,
	} {
		s, table, noon := hourly(t)
		s.Spec.Suspend, s.Status.Held = true, v1alpha1.SlotSuspended
		s.Status.Skipped = []v1alpha1.SkippedSlots{{From: metav1.NewTime(noon.Add(-2 * time.Hour)), To: metav1.NewTime(noon), Count: 3, Reason: v1alpha1.SlotSuspended}}
		s.Spec.Cron = []string{"*/30 * * * *"}
		edited, err := cron.New(s.Spec.Cron, "", cron.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		s.Status = Decide(Input{Now: noon.Add(after), Schedule: s, Table: edited, Was: table}).Status
		s.Spec.Suspend = false
		s.Status = Decide(Input{Now: noon.Add(time.Hour + time.Minute), Schedule: s, Table: edited, Was: edited}).Status
		if all := s.Status.Skipped; len(all) != 2 || all[0].Count != 3 || all[1].Count != 2 || !all[1].From.Time.Equal(noon.Add(30*time.Minute)) {
			t.Errorf("edited %s: %+v", name, all)
		}
	}
}

// mutations: follows that takes no range as that of before; ofOneTiming without its bound.
func TestARangeGoesOnWhereItEnded(t *testing.T) {
	s, table, noon := hourly(t)
	s.Status.Skipped = []v1alpha1.SkippedSlots{{From: metav1.NewTime(noon.Add(-49_999 * time.Hour)), To: metav1.NewTime(noon), Count: 50_000, Reason: v1alpha1.SlotSuspended}}
	s.Spec.Suspend, s.Status.Held = false, v1alpha1.SlotSuspended
	d := Decide(Input{Now: noon.Add(15_000*time.Hour + time.Minute), Schedule: s, Table: table, Was: table})
	s.Status = d.Status
	if !d.Again || len(s.Status.Skipped) != 1 || s.Status.Skipped[0].Count != 50_000+maxSlots {
		t.Fatalf("again %t, %+v", d.Again, s.Status.Skipped)
	}
	s.Status = Decide(Input{Now: noon.Add(15_000*time.Hour + time.Minute), Schedule: s, Table: table, Was: table}).Status
	if all := s.Status.Skipped; len(all) != 1 || all[0].Count != 65_000 {
		t.Errorf("%+v", all)
	}
}

// Slots that make room for later ones are decided after these have begun to wait.
//
// mutation: ofOneTiming that takes no range as one but those that end where all is decided.
func TestSlotsThatMakeRoomAreOneRange(t *testing.T) {
	s, table, noon := hourly(t)
	s.Spec.Overlap = v1alpha1.OverlapCancelOther
	runs := []Run{{Name: "before", Slot: noon}}
	for i := range 6 {
		s.Status = Decide(Input{Now: noon.Add(time.Duration(i+1)*time.Hour + time.Minute), Schedule: s, Table: table, Was: table, Runs: runs}).Status
	}
	if all := s.Status.Skipped; len(all) != 1 || all[0].Count != 5 || all[0].Reason != v1alpha1.SlotSuperseded {
		t.Errorf("%+v", all)
	}
}
