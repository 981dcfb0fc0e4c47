// SPDX-License-Identifier: Apache-2.0

package views

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const maxSkipped = 5

// Schedules is the page of schedules.
type Schedules struct {
	Scope
	Schedules []Schedule
	More      bool // there are more than were read
}

// Schedule is one of them.
type Schedule struct {
	Namespace, Name     string
	Cron, Zone, Overlap string
	State, Message      string
	Tone, Mark          string
	Active              int32
	Failures            int32
	Started, NotStarted int64
	Next                []Slot
	Last                []Slot
	Skipped             []Skipped
	Backfill            string
}

// Slot is a time of a schedule, with its run if it has one.
type Slot struct {
	Time string
	When Moment
	Run  string
}

// Skipped are slots without a run.
type Skipped struct {
	Count           int64
	Reason, Message string
	To              Moment
}

// SchedulesOf makes the page: those that need a look first, then by name.
func SchedulesOf(list []v1alpha1.Schedule, now time.Time) Schedules {
	page := Schedules{}
	for i := range list {
		page.Schedules = append(page.Schedules, scheduleOf(&list[i], now))
	}
	rank := func(s Schedule) int { return slices.Index([]string{"bad", "warn", "good", "idle"}, s.Tone) }
	slices.SortStableFunc(page.Schedules, func(a, b Schedule) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return page
}

func scheduleOf(s *v1alpha1.Schedule, now time.Time) Schedule {
	out := Schedule{
		Namespace: s.Namespace, Name: s.Name, Cron: text(strings.Join(s.Spec.Cron, "; ")), Zone: cmp.Or(s.Spec.TimeZone, "UTC"), Overlap: words(string(s.Spec.Overlap)),
		State: "not looked at yet", Tone: "idle", Mark: "·",
	}
	st := s.Status
	if st == nil {
		return out
	}
	out.Active, out.Failures, out.Started, out.NotStarted = st.Active, st.Failures, st.Started, st.NotStarted
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c != nil {
		out.State, out.Message = words(c.Reason), text(c.Message)
		switch c.Reason {
		case v1alpha1.ReasonScheduled:
			out.Tone, out.Mark = "good", "✔"
		case v1alpha1.ReasonScheduleSuspended, v1alpha1.ReasonPaused:
			out.Tone, out.Mark = "warn", "‖"
		case v1alpha1.ReasonStopped:
		default:
			out.Tone, out.Mark = "bad", "✖"
		}
	}
	out.slots(st, now)
	return out
}

// slots adds the next and the last ones, and those without a run.
func (out *Schedule) slots(st *v1alpha1.ScheduleStatus, now time.Time) {
	for _, at := range st.Next {
		out.Next = append(out.Next, slotOf(at, "", now))
	}
	for _, l := range st.Last {
		out.Last = append(out.Last, slotOf(l.Time, l.Run, now))
	}
	for _, k := range slices.Backward(st.Skipped) {
		if len(out.Skipped) < maxSkipped {
			out.Skipped = append(out.Skipped, Skipped{k.Count, words(string(k.Reason)), text(k.Message), moment(&k.To.Time, now)})
		}
	}
	if b := st.Backfill; b != nil && b.FinishedAt == nil {
		out.Backfill = "under way, done until " + b.DoneUntil.UTC().Format(time.RFC3339)
	}
}

func slotOf(at, run string, now time.Time) Slot {
	s := Slot{Time: shortText(at), Run: shortText(run)}
	if t, err := time.Parse(time.RFC3339, at); err == nil {
		s.When = moment(&t, now)
	}
	return s
}
