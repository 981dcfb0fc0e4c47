// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// byNewer writes a run's status as an operator would that is newer than this one.
func (w *world) byNewer(name string) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := w.runs()[name]
	if run.Status == nil {
		run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning}
	}
	run.Status.MinWriterVersion = v1alpha1.WriterVersion + 1
	if err := w.client.Status().Update(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
	return run
}

// runsAreOld has an operator list the runs of a schedule as they are now, for ever.
func (w *world) runsAreOld(r *Reconciler, s *v1alpha1.Schedule) {
	w.t.Helper()
	old, err := r.Runs(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) { return old, nil }
}

// noRunsCached has operators made from now on find no run in their cache.
func (w *world) noRunsCached() {
	w.funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, is := o.(*v1alpha1.WorkflowRun); is {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "workflowruns"}, key.Name)
		}
		return c.Get(ctx, key, o, opts...)
	}
}

// The operator was rolled back while a run is under way: the next slot waits, and the run is not
// written.
//
// mutations: cancel without its look at the version makes all fail; newer that believes the
// decision alone, the second; newer that believes the cache alone, or runFact that does not note
// it, the third.
func TestARunThatNeedsANewerOperatorIsNotCancelledForASlot(t *testing.T) {
	for name, prepare := range map[string]func(w *world, s *v1alpha1.Schedule, run string) *Reconciler{
		"the list and the cache know": func(w *world, _ *v1alpha1.Schedule, run string) *Reconciler {
			w.byNewer(run)
			return w.operator()
		},
		"the list is old": func(w *world, s *v1alpha1.Schedule, run string) *Reconciler {
			r := w.operator()
			w.runsAreOld(r, s)
			w.byNewer(run)
			return r
		},
		"the cache has no run, and it was read live": func(w *world, _ *v1alpha1.Schedule, run string) *Reconciler {
			w.byNewer(run)
			w.noRunsCached()
			r := w.operator()
			r.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) { return nil, nil }
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = v1alpha1.OverlapCancelOther })
			w.settle(w.operator(), s)
			w.at(1, 1)
			w.settle(w.operator(), s)
			first := schedule.RunName("report", w.slot(1))
			r := prepare(w, s, first)
			before := w.runs()[first]
			w.at(2, 1)
			st := w.settle(r, s)
			if after := w.runs()[first]; after.Spec.Shutdown != "" || after.ResourceVersion != before.ResourceVersion {
				t.Errorf("it was written: shutdown %q", after.Spec.Shutdown)
			}
			if st.Active != 1 || len(st.Waiting) != 1 || len(w.runs()) != 1 {
				t.Errorf("the slot does not wait for it: %d runs, %+v", len(w.runs()), st)
			}
			d := schedule.Decision{Cancel: []schedule.Run{{Name: first, UID: string(before.UID), NeedsNewer: true}}}
			if again, err := r.act(t.Context(), w.stored(s), schedule.Input{}, &d, newMemory(s.UID)); err != nil || again != refusedPause {
				t.Errorf("asked again after %s, %v", again, err)
			}
		})
	}
}

// Another has its name now: the version of that one says nothing of the run that is to be
// cancelled, which the UID in the patch looks after.
//
// mutation: newer that does not compare UIDs makes this fail.
func TestTheVersionOfARunThatWasMadeAnewIsNotThatOfTheOneBefore(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	w.settle(w.operator(), s)
	w.at(1, 1)
	w.settle(w.operator(), s)
	name := schedule.RunName("report", w.slot(1))
	run := w.byNewer(name)
	r := w.operator()
	for uid, want := range map[string]bool{string(run.UID): true, "": true, "another": false} {
		if is, err := r.newer(t.Context(), s, &schedule.Run{Name: name, UID: uid}); err != nil || is != want {
			t.Errorf("of UID %q: %t, %v", uid, is, err)
		}
	}
}

// Runs that ended before the operator was rolled back are kept, and keep no slot from its run: that
// they ended is not taken back. The limits count those that this operator may delete.
//
// mutations: runFact that takes them for under way makes the first fail, and delete without its
// look at the version the second.
func TestRunsThatEndedAndNeedANewerOperatorAreKept(t *testing.T) {
	for name, old := range map[string]bool{"the list knows": false, "the list is old": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.SuccessfulRunsHistoryLimit = new(int32(1)) })
			w.settle(w.operator(), s)
			w.at(1, 1)
			w.settle(w.operator(), s)
			first := schedule.RunName("report", w.slot(1))
			w.end(first, v1alpha1.RunSucceeded)
			r := w.operator()
			list := r.Runs
			r.Runs = func(ctx context.Context, s *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) {
				runs, err := list(ctx, s)
				for i := range runs {
					if old && runs[i].Name == first {
						runs[i].Status.MinWriterVersion = 0
					}
				}
				return runs, err
			}
			w.byNewer(first)
			for hour := 2; hour <= 4; hour++ {
				w.at(hour, 1)
				w.settle(r, s)
				w.end(schedule.RunName("report", w.slot(hour)), v1alpha1.RunSucceeded)
			}
			w.at(4, 30)
			if got := w.hours("report", w.settle(r, s)); got != "1 4 []" {
				t.Errorf("runs of %s", got)
			}
		})
	}
}

// A stop is for good. What a run returned may be read wrongly, so the newer operator asks.
//
// mutation: stops without its look at the version makes this fail.
func TestARunThatNeedsANewerOperatorStopsNoSchedule(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.StopWhen = "run.outputs.left == 0" })
	r := w.operator()
	w.settle(r, s)
	w.at(1, 1)
	w.settle(r, s)
	first := schedule.RunName("report", w.slot(1))
	w.end(first, v1alpha1.RunSucceeded)
	run := w.byNewer(first)
	if st := w.settle(r, s); st.Held != "" {
		t.Errorf("held: %s", st.Held)
	}
	run.Status.MinWriterVersion = v1alpha1.WriterVersion
	if err := w.client.Status().Update(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if st := w.settle(r, s); st.Held != v1alpha1.SlotStopped {
		t.Errorf("once it can be read: held %q", st.Held)
	}
}
