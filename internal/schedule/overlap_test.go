// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
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
