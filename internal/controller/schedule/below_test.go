// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// endAbove ends a run that names a child run.
func (w *world) endAbove(name string, phase v1alpha1.RunPhase) {
	w.t.Helper()
	run := w.runs()[name]
	at := metav1.NewTime(w.clock.Now())
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: phase, CompletedAt: &at, Steps: []v1alpha1.StepStatus{
		{Name: "work", Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: name + "-work", UID: "u-" + name}},
	}}
	if err := w.client.Status().Update(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
}

// mutations: observe that does not look below runs that ended, busy that counts Active only, and
// cancel that cancels what cleans up make this fail.
func TestSlotsWhileAChildOfTheRunBeforeCleansUp(t *testing.T) {
	for overlap, want := range map[v1alpha1.OverlapPolicy]struct {
		while, after string // runs of hours, and reasons
		active       int32
	}{
		v1alpha1.OverlapSkip:        {"1 [Overlap x 1]", "1 [Overlap x 1]", 1},
		v1alpha1.OverlapBufferOne:   {"1 []", "1 2 []", 1},
		v1alpha1.OverlapBufferAll:   {"1 []", "1 2 []", 1},
		v1alpha1.OverlapCancelOther: {"1 []", "1 2 []", 1},
		v1alpha1.OverlapAllow:       {"1 2 []", "1 2 []", 2},
	} {
		t.Run(string(overlap), func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = overlap })
			r := w.operator()
			first, cleaning := schedule.RunName("report", w.slot(1)), true
			r.Below = func(_ context.Context, run *v1alpha1.WorkflowRun) (bool, error) {
				return cleaning && run.Name == first, nil
			}
			w.settle(r, s)
			w.at(1, 1)
			w.settle(r, s)
			w.endAbove(first, v1alpha1.RunTimedOut)
			w.at(2, 1)
			st := w.settle(r, s)
			if got := w.hours("report", st); got != want.while || st.Active != want.active || st.Failures != 1 {
				t.Errorf("while it cleans up: %s, want %s; %d are active, %d failed", got, want.while, st.Active, st.Failures)
			}
			if w.runs()[first].Spec.Shutdown != "" {
				t.Error("a run that has ended was cancelled")
			}
			if result := w.pass(r, s); result.RequeueAfter != cleanUpPause {
				t.Errorf("again after %s", result.RequeueAfter)
			}
			cleaning = false
			w.clock.SetTime(w.clock.Now().Add(cleanUpPause))
			if got := w.hours("report", w.settle(r, s)); got != want.after {
				t.Errorf("after that: %s, want %s", got, want.after)
			}
		})
	}
}

// mutation: backfilling that counts Active only makes this fail.
func TestABackfillWaitsForTheCleanUpBelowARun(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.hour.Add(-3 * time.Hour)), To: metav1.NewTime(w.hour.Add(-time.Hour))}
	})
	r := w.operator()
	cleaning := true
	r.Below = func(context.Context, *v1alpha1.WorkflowRun) (bool, error) { return cleaning, nil }
	w.settle(r, s)
	if len(w.runs()) != 1 {
		t.Fatalf("%d runs", len(w.runs()))
	}
	for name := range w.runs() {
		w.endAbove(name, v1alpha1.RunFailed)
	}
	if w.settle(r, s); len(w.runs()) != 1 {
		t.Errorf("%d runs while the first one cleans up", len(w.runs()))
	}
	cleaning = false
	w.clock.SetTime(w.clock.Now().Add(cleanUpPause))
	if w.settle(r, s); len(w.runs()) != 2 {
		t.Errorf("%d runs after that", len(w.runs()))
	}
}

// A pass may be made for each event, and a look may read the API server for each child.
//
// mutations: lookBelow that asks again within cleanUpPause, or again where nothing is under way any
// more, or in a pass where the clock was set back not at all, makes this fail.
func TestItIsLookedBelowARunNowAndThenUntilNothingIsUnderWay(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	r := w.operator()
	looks, cleaning := 0, true
	r.Below = func(context.Context, *v1alpha1.WorkflowRun) (bool, error) {
		looks++
		return cleaning, nil
	}
	w.settle(r, s)
	w.at(1, 1)
	w.settle(r, s)
	w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded) // it has no child
	w.at(2, 1)
	w.settle(r, s)
	if looks != 0 {
		t.Errorf("%d looks below a run that has no child", looks)
	}
	w.endAbove(schedule.RunName("report", w.slot(2)), v1alpha1.RunFailed)
	after := func(wait time.Duration, want int) {
		t.Helper()
		w.clock.SetTime(w.clock.Now().Add(wait))
		if w.pass(r, s); looks != want {
			t.Errorf("%d looks, want %d", looks, want)
		}
	}
	after(0, 1)
	after(time.Second, 1)
	after(cleanUpPause, 2)
	after(-time.Minute, 3)
	cleaning = false
	after(cleanUpPause, 4)
	after(cleanUpPause, 4)
}

// Who takes over a schedule that keeps many runs knows nothing of what is below them.
//
// mutation: lookBelow without an end after maxWaits, or that goes on with what is not known, makes
// this fail.
func TestAPassLooksBelowFewRunsAndNoSlotIsDecidedBeforeAllAreKnown(t *testing.T) {
	const kept = maxWaits + 20
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.FailedRunsHistoryLimit = new(int32(kept)) })
	w.settle(w.operator(), s)
	for i := range kept {
		w.run("report", -1-i, owns(s))
		w.endAbove(schedule.RunName("report", w.slot(-1-i)), v1alpha1.RunFailed)
	}
	r, looks := w.operator(), 0
	r.Below = func(context.Context, *v1alpha1.WorkflowRun) (bool, error) {
		looks++
		return false, nil
	}
	w.at(1, 1)
	if result := w.pass(r, s); result.RequeueAfter != passes.Later || looks != maxWaits || len(w.runs()) != kept {
		t.Errorf("%d looks, %d runs, again after %s", looks, len(w.runs()), result.RequeueAfter)
	}
	if w.settle(r, s); looks != kept || w.runs()[schedule.RunName("report", w.slot(1))] == nil {
		t.Errorf("%d looks, %d runs", looks, len(w.runs()))
	}
}
