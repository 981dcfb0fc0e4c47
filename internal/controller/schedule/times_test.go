// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// The rules of the API refuse a time that is of the year 10000 in UTC, but a schedule from before
// them may have it. No status with it can be written, so it has to say so in one without it.
//
// mutations: tableOf that does not look at the backfill, and fillBack of a schedule that is held
// make this fail.
func TestABackfillToATimeThatCannotBeWrittenIsSaid(t *testing.T) {
	w := newWorld(t)
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*60*60))
	w.funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, key, o, opts...)
		if s, ok := o.(*v1alpha1.Schedule); ok && s.Spec.Backfill != nil {
			s.Spec.Backfill.To.Time = late
		}
		return err
	}
	s := w.schedule("report", nil)
	r := w.operator()
	w.settle(r, s)
	w.edit(s, func(s *v1alpha1.Schedule) {
		s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.slot(-4)), To: metav1.NewTime(w.slot(-2))}
	})
	w.settle(r, s)
	w.at(1, 1)
	st := w.settle(r, s)
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonInvalidSchedule ||
		!strings.HasPrefix(c.Message, "spec.backfill.to: it is not in the years") {
		t.Errorf("%+v", c)
	}
	if len(w.runs()) != 0 || st.Backfill != nil {
		t.Errorf("%d runs, backfill %+v", len(w.runs()), st.Backfill)
	}
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Backfill = nil })
	w.settle(r, s)
	w.at(2, 1)
	if st := w.settle(r, s); len(w.runs()) != 1 || !meta.IsStatusConditionFalse(st.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("after an edit: %d runs, %+v", len(w.runs()), st.Conditions)
	}
}

// The end of a run was written by a clock that was a year ahead. The next one is asked
// all the same.
//
// mutation: lastEnded that believes such an end makes this fail.
func TestStopWhenIsNotHeldUpByAnEndThatIsAhead(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.StopWhen = `run.phase == "Failed"` })
	r := w.operator()
	w.settle(r, s)
	w.at(1, 1)
	w.settle(r, s)
	w.clock.SetTime(w.slot(1).AddDate(1, 0, 0))
	w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded)
	w.at(2, 1)
	w.settle(r, s)
	w.end(schedule.RunName("report", w.slot(2)), v1alpha1.RunFailed)
	if st := w.settle(r, s); st.Held != v1alpha1.SlotStopped {
		t.Errorf("held %q, failures %d since %v", st.Held, st.Failures, st.FailuresSince)
	}
}
