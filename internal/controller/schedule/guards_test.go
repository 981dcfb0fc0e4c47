// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// An operator died before it created the run of a slot, a second one created it, and it is deleted
// again. A third one, whose cache has the status that the first one wrote, must not create it anew.
//
// mutation: persist that does not compare versions makes this fail.
func TestAnOldCacheStartsNoSlotAgain(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	w.settle(w.operator(), s)
	w.at(1, 1)
	w.funcs.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return errors.New("the process is gone")
	}
	_, _ = w.operator().Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
	old := w.stored(s)
	if len(old.Status.Starting) != 1 {
		t.Fatalf("%+v", old.Status)
	}

	w.funcs = interceptor.Funcs{}
	w.settle(w.operator(), s)
	run := w.runs()[schedule.RunName("report", w.slot(1))]
	if run == nil {
		t.Fatal("the second operator created no run")
	}
	if err := w.client.Delete(t.Context(), run); err != nil {
		t.Fatal(err)
	}

	w.getsOld(old)
	result, err := w.operator().Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
	if err != nil || result.RequeueAfter != conflictPause || len(w.runs()) != 0 {
		t.Errorf("again after %s, %v; runs %v", result.RequeueAfter, err, w.runs())
	}
}

// getsOld has operators that are made from now on read an old version of a schedule.
func (w *world) getsOld(old *v1alpha1.Schedule) {
	w.funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if s, is := o.(*v1alpha1.Schedule); is {
			old.DeepCopyInto(s)
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}
}

// A run is cancelled for a slot that waits, if that is still so: its cache may be behind an edit,
// or behind the start of the slot.
//
// mutation: persist that compares versions only to create.
func TestAnOldCacheCancelsNoRun(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = v1alpha1.OverlapCancelOther })
	w.settle(w.operator(), s)
	w.at(1, 1)
	w.settle(w.operator(), s)
	w.at(2, 1)
	w.funcs.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return errors.New("the process is gone")
	}
	_, _ = w.operator().Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
	old := w.stored(s)
	if len(old.Status.Waiting) != 1 {
		t.Fatalf("%+v", old.Status)
	}
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Overlap = v1alpha1.OverlapBufferOne })
	w.funcs = interceptor.Funcs{}
	w.getsOld(old)
	result, err := w.operator().Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
	if run := w.runs()[schedule.RunName("report", w.slot(1))]; err != nil || result.RequeueAfter != conflictPause || run.Spec.Shutdown != "" {
		t.Errorf("again after %s, %v; shutdown: %q", result.RequeueAfter, err, run.Spec.Shutdown)
	}
}

// A slot waited for the run before it, and has its run now. One whose cache still has it waiting
// must not cancel that run for it.
//
// The mutation of TestAnOldCacheCancelsNoRun is seen here, too, with a cancel that does not look
// which slots wait.
func TestAnOldCacheCancelsNoRunThatWasJustStarted(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = v1alpha1.OverlapCancelOther })
	w.settle(w.operator(), s)
	for hour := 1; hour <= 2; hour++ {
		w.at(hour, 1)
		w.settle(w.operator(), s)
	}
	old := w.stored(s)
	if len(old.Status.Waiting) != 1 {
		t.Fatalf("%+v", old.Status)
	}
	w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunCancelled)
	w.settle(w.operator(), s)
	w.getsOld(old)
	if _, err := w.operator().Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
		t.Fatal(err)
	}
	if run := w.runs()[schedule.RunName("report", w.slot(2))]; run == nil || run.Spec.Shutdown != "" {
		t.Errorf("%+v", run)
	}
}

type never struct{ always }

func (never) Enter(ctx context.Context, _ types.UID) (context.Context, func() bool, bool) {
	return ctx, func() bool { return false }, false
}

// mutation: Reconcile that goes on without Enter makes this fail.
func TestAScheduleOfAnotherReplicaIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	before := w.settle(w.operator(), s)
	w.at(1, 1)
	r := w.operator()
	r.Driven = never{}
	if result := w.pass(r, s); result != (reconcile.Result{}) || len(w.runs()) != 0 || w.stored(s).Status.Started != before.Started {
		t.Errorf("%+v, runs %v", result, w.runs())
	}
}

// A replica keeps the schedules of others for when it gains their partition, and no longer
// than they exist.
//
// mutation: Reconcile that does not drop a schedule that is gone makes this fail, and so does one
// that drops what others drive.
func TestAScheduleOfAnotherReplicaIsKeptUntilItIsDeleted(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	r := w.operator()
	r.Driven = never{}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	r.waker.start(q)
	w.pass(r, s)
	r.Gained(map[int]bool{protocol.Partition(string(s.UID)): true})
	if q.Len() != 1 {
		t.Fatalf("%d schedules are woken with their partition", q.Len())
	}
	if err := w.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.pass(r, s)
	if len(r.waker.waiting) > 0 {
		t.Errorf("kept: %v", r.waker.waiting)
	}
}

// The API server refuses such a template; one that was stored before it did is not believed either.
//
// mutation: runOf that keeps the annotation of the template makes this fail.
func TestATemplateDoesNotSayWhoCreatedItsRuns(t *testing.T) {
	s := &v1alpha1.Schedule{}
	s.Spec.RunTemplate.Metadata.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "mallory", "team": "a"}
	s.Spec.RunTemplate.Spec.Raw = []byte(steps)
	run, err := runOf(s, time.Unix(0, 0), "")
	if err != nil || run.Annotations["team"] != "a" || run.Annotations[v1alpha1.AnnotationCreatedBy] != "" {
		t.Errorf("%v, %v", run.Annotations, err)
	}
}

// With kubectl delete --cascade=foreground it is there until its runs are gone.
//
// mutation: look that makes passes over a schedule that is being deleted starts runs which the
// garbage collector deletes while they work.
func TestAScheduleThatIsBeingDeletedStartsNoRuns(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	before := w.settle(w.operator(), s)
	w.edit(s, func(s *v1alpha1.Schedule) { s.Finalizers = []string{"test/waits"} })
	if err := w.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.at(1, 1)
	if after := w.settle(w.operator(), s); !cmp.Equal(before, after) || len(w.runs()) > 0 {
		t.Errorf("runs %v, status (-before +after):\n%s", w.runs(), cmp.Diff(before, after))
	}
	w.edit(s, func(s *v1alpha1.Schedule) { s.Finalizers = nil })
}
