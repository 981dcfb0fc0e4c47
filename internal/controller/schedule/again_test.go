// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// A policy that says Invalid (422) of a template may be mended, and nobody edits the schedules that
// it refused meanwhile. Only what the operator finds itself is for good.
//
// mutations: dryRun that asks no more after a refusal, or that takes the second one for another
// kind, or each minute.
func TestATemplateThatAPolicyRefusedIsAskedAboutAgain(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Cron = []string{"0 0 29 2 *"} })
	refused := true
	asked := w.answers(func(bool) error {
		if refused {
			return errInvalid
		}
		return nil
	})
	r := w.operator()
	w.settle(r, s)
	before := w.stored(s).ResourceVersion
	for range 30 {
		if wait := w.pass(r, s).RequeueAfter; wait != longestWait { // though it is held
			t.Fatalf("the next pass is after %v", wait)
		}
		w.clock.SetTime(w.clock.Now().Add(longestWait))
	}
	st := w.settle(r, s)
	if !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled) || w.stored(s).ResourceVersion != before {
		t.Errorf("refused again: %+v", st)
	}
	if *asked != 4 {
		t.Errorf("%d dry runs in half an hour, want 4", *asked)
	}
	refused = false
	w.clock.SetTime(w.clock.Now().Add(askPause))
	if st := w.settle(r, s); !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("mended: %+v", st)
	}
}

// mutation: nextAsk without a pace for all schedules.
func TestRefusedSchedulesAreAskedAboutOneAfterTheOther(t *testing.T) {
	r, now := &Reconciler{}, time.Unix(1_000_000, 0)
	last := r.nextAsk(now)
	if last != now.Add(askPause) {
		t.Errorf("one is asked about after %v", last.Sub(now))
	}
	for range 100 {
		next := r.nextAsk(now)
		if next.Sub(last) < asksPace {
			t.Fatalf("two are asked about within %v", next.Sub(last))
		}
		last = next
	}
	if next := r.nextAsk(last); next != last.Add(askPause) {
		t.Errorf("later, one is asked about after %v", next.Sub(last))
	}
	if next := r.nextAsk(now.Add(-time.Hour)); next.After(now) {
		t.Errorf("the clock was set back: it is asked about at %s", next)
	}
}

// One time for all runs of a schedule is before most of them.
//
// mutation: a template that is validated as if its run were created now.
func TestATemplateMayWaitForATimeThatHasPassed(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.RunTemplate.Spec.Raw = []byte(`{"steps":[{"name":"wait","delay":{"until":"2020-01-01T00:00:00Z"}}]}`)
	})
	r := w.operator()
	w.settle(r, s)
	w.at(1, 0)
	if st := w.settle(r, s); st.Started != 1 || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("%+v", st)
	}
}
