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
