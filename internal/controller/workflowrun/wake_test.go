// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// boss is a run with two child runs under way.
func boss() *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "boss", UID: "u-boss"},
		Status: &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Fence: new(int64(1)), Steps: []v1alpha1.StepStatus{
			{Name: "a", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "kid-a"}},
			{Name: "b", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "kid-b", UID: "u-b"}},
			{Name: "c", Phase: v1alpha1.StepRunning},
		}},
	}
}

func kid(name string) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("u-" + name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(boss(), v1alpha1.GroupVersion.WithKind("WorkflowRun"))},
	}}
}

func finishedKid(name string) *v1alpha1.WorkflowRun {
	run := kid(name)
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunSucceeded, CompletedAt: &metav1.Time{Time: epoch}, Fence: new(int64(1)), Parent: &v1alpha1.ParentStatus{Name: "boss", UID: "u-boss"},
	}
	return run
}

// mutations: WakeAfter that wakes at once, and one by another entry of the queue, make this fail.
func TestARunThatIsWokenMeanwhileIsNotWokenAgainLater(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	var w Waker
	w.WakeAfter(types.NamespacedName{Name: "early"}, 0) // there is no queue yet
	w.start(q)
	key := types.NamespacedName{Namespace: "ns", Name: "run"}
	w.WakeAfter(key, time.Hour)
	if n := q.Len(); n != 0 {
		t.Fatalf("%d runs are woken at once", n)
	}
	w.Wake(key)
	if n := q.Len(); n != 1 {
		t.Fatalf("%d runs are woken", n)
	}
	got, _ := q.Get()
	q.Done(got)
	w.WakeAfter(key, time.Millisecond)
	if again, _ := q.Get(); again != got || again.NamespacedName != key || q.Len() != 0 {
		t.Errorf("woken: %v, then %v, and %d more", got, again, q.Len())
	}
}

// delays notes when runs are woken.
type delays struct {
	queue
	after map[string]time.Duration
}

func (d delays) Add(r reconcile.Request)                           { d.after[r.Name] = 0 }
func (d delays) AddAfter(r reconcile.Request, after time.Duration) { d.after[r.Name] = after }

// A new owner of ten thousand runs that have ended had all of them in the line of their tenant
// before the run whose result came.
//
// mutations: ended runs that are woken at once, or all at the same moment; live ones after them.
func TestRunsThatHaveEndedAreLookedAtLater(t *testing.T) {
	names := func(of string, n int) (keys []types.NamespacedName) {
		for i := range n {
			keys = append(keys, types.NamespacedName{Name: fmt.Sprint(of, i)})
		}
		return keys
	}
	var w Waker
	got := delays{after: map[string]time.Duration{}}
	w.start(got)
	wakeAdopted(&w, results.Adopted{Waiting: names("waits", 2), Running: names("runs", 2), Ended: names("ended", 3)})
	want := map[string]time.Duration{
		"waits0": 0, "waits1": 0, "runs0": resultsFirst, "runs1": resultsFirst,
		"ended0": endedLater, "ended1": endedLater + endedEvery, "ended2": endedLater + 2*endedEvery,
	}
	if diff := cmp.Diff(want, got.after); diff != "" {
		t.Errorf("woken after (-want +got):\n%s", diff)
	}
}

// mutation: each call of children.Wake in setup.go, and each of its cases, that is left out makes
// this fail.
func TestRelativesWakeEachOther(t *testing.T) {
	changed := func(change func(*v1alpha1.WorkflowRun)) any {
		now := boss()
		change(now)
		return event.UpdateEvent{ObjectOld: boss(), ObjectNew: now}
	}
	for name, c := range map[string]struct {
		event any
		want  []string // the run itself included, where it is woken
	}{
		"a child is created":          {event.CreateEvent{Object: kid("kid-a")}, []string{"boss", "kid-a"}},
		"a child is deleted":          {event.DeleteEvent{Object: kid("kid-a")}, []string{"boss", "kid-a"}},
		"a child ends":                {event.UpdateEvent{ObjectOld: kid("kid-a"), ObjectNew: finishedKid("kid-a")}, []string{"boss"}},
		"a child moves on":            {event.UpdateEvent{ObjectOld: kid("kid-a"), ObjectNew: kid("kid-a")}, nil},
		"the parent is deleted":       {event.DeleteEvent{Object: boss()}, []string{"boss", "kid-a", "kid-b", "liar"}},
		"the parent moves on":         {changed(func(p *v1alpha1.WorkflowRun) { p.Status.Steps[2].Phase = v1alpha1.StepSucceeded }), nil},
		"the parent names a child":    {changed(func(p *v1alpha1.WorkflowRun) { p.Status.Steps[0].ChildRun.UID = "u-a" }), []string{"kid-a"}},
		"a step of the parent ends":   {changed(func(p *v1alpha1.WorkflowRun) { p.Status.Steps[1].Phase = v1alpha1.StepCancelled }), []string{"kid-b"}},
		"the parent is to suspend":    {changed(func(p *v1alpha1.WorkflowRun) { p.Spec.Suspend = true }), []string{"kid-a", "kid-b", "liar"}},
		"the parent suspends":         {changed(func(p *v1alpha1.WorkflowRun) { p.Status.Phase = v1alpha1.RunSuspended }), []string{"kid-a", "kid-b", "liar"}},
		"the parent is to terminate":  {changed(func(p *v1alpha1.WorkflowRun) { p.Spec.Shutdown = v1alpha1.ShutdownTerminate }), []string{"kid-a", "kid-b", "liar"}},
		"the parent ends":             {changed(func(p *v1alpha1.WorkflowRun) { p.Status.Phase = v1alpha1.RunFailed }), []string{"kid-a", "kid-b", "liar"}},
		"another run takes its place": {changed(func(p *v1alpha1.WorkflowRun) { p.UID = "u-new" }), []string{"boss", "kid-a", "kid-b", "liar"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Index: results.NewIndex(), Holder: "me", Driven: driven.New(clock.RealClock{}, ownsAll{}), Known: func(context.Context, types.UID) {}}
			r.Driven.Begin(protocol.AllPartitions())
			for _, run := range []*v1alpha1.WorkflowRun{boss(), kid("kid-a"), kid("kid-b"), kid("liar"), kid("old"), finishedKid("old"), kid("gone")} {
				r.Index.See(run)
			}
			r.Index.Remove(kid("gone"), true)
			if diff := cmp.Diff(c.want, wokenBy(t, r, c.event)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// wokenBy are the runs that an event of the informer wakes.
func wokenBy(t *testing.T, r *Reconciler, e any) []string {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	switch e := e.(type) {
	case event.CreateEvent:
		r.informer().Create(t.Context(), e, q)
	case event.UpdateEvent:
		r.informer().Update(t.Context(), e, q)
	case event.DeleteEvent:
		r.informer().Delete(t.Context(), e, q)
	}
	var names []string
	for q.Len() > 0 {
		key, _ := q.Get()
		names = append(names, key.Name)
		q.Done(key)
	}
	slices.Sort(names)
	return names
}
