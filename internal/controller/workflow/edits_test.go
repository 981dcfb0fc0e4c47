// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// edit changes a Workflow, and has its revision kept if it may.
func (w *world) edit(wf *v1alpha1.Workflow, step string) (result reconcile.Result) {
	w.t.Helper()
	wf.Spec.Template.Steps[0].Name = step
	w.must(w.client.Update(w.t.Context(), wf))
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wf)})
	w.must(err)
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(wf), wf))
	return result
}

// crowd makes so many revisions of a Workflow, as runs do that follow it.
func (w *world) crowd(wf *v1alpha1.Workflow, n int) {
	w.t.Helper()
	for i := range n {
		other := wf.DeepCopy()
		other.Spec.Template.Steps[0].Name = fmt.Sprint("crowd-", i)
		_, err := w.r.Revisions.Ensure(w.t.Context(), other)
		w.must(err)
	}
}

// Each revision is as large as its Workflow, which may have 1 MiB.
//
// mutations: look that keeps each generation at once; a pause that does not grow; one that ends for
// good.
func TestAWorkflowThatIsEditedAllTheTimeHasFewRevisions(t *testing.T) {
	w := newWorld(t)
	clk := clocktesting.NewFakeClock(time.Now())
	w.r.Clock = clk
	wf := w.workflow("report", "a", 3)
	var wait time.Duration
	for i := range 300 {
		clk.Step(100 * time.Millisecond)
		wait = w.edit(wf, fmt.Sprint("edit-", i)).RequeueAfter
	}
	if n := len(w.kept("report")); n > 30 {
		t.Errorf("%d revisions at the peak", n)
	}
	if wait <= 0 {
		t.Fatal("the last edit is forgotten")
	}
	clk.Step(wait)
	_, newest, err := template.Encode(&wf.Spec)
	w.must(err)
	if now := w.reconcile(wf); now.Status.ObservedGeneration != now.Generation || now.Status.Revision != newest {
		t.Errorf("generation %d: %+v; want revision %s", now.Generation, now.Status, newest)
	}
	if w.sweep(); len(w.kept("report")) > 4 {
		t.Errorf("%d revisions after a round", len(w.kept("report")))
	}
	clk.Step(rest)
	w.must(w.client.Get(t.Context(), client.ObjectKeyFromObject(wf), wf))
	if result := w.edit(wf, "later"); result != (reconcile.Result{}) {
		t.Errorf("after a rest: %+v", result)
	}
}

// mutations: a round that deletes no more than a mark may name; one that leaves the mark of a part.
func TestSweeper_DeletesAllThatNobodyNeedsInOneRound(t *testing.T) {
	w := newWorld(t)
	wf := w.workflow("report", "a", 3)
	w.crowd(wf, 230)
	w.sweep()
	if kept := w.kept("report"); len(kept) != 4 || !slices.Contains(kept, wf.Status.Revision) {
		t.Errorf("%d revisions are left", len(kept))
	}
	if now := w.status("report"); len(now.Retiring) > 0 || now.Revisions != 4 {
		t.Errorf("after the round: %+v", now)
	}
}

// One Workflow with thousands does not keep the round from others.
//
// mutation: a round without an end for one Workflow.
func TestSweeper_LeavesTheRestOfAWorkflowForTheNextRound(t *testing.T) {
	w := newWorld(t)
	clk := clocktesting.NewFakeClock(time.Now())
	w.s.Clock = clk
	w.crowd(w.workflow("report", "a", 0), 150)
	w.before = func(what string) {
		if what == "delete" {
			clk.Step(longestSweep / maxRetiring)
		}
	}
	for i, want := range []int{51, 1} {
		if w.sweep(); len(w.kept("report")) != want {
			t.Errorf("round %d: %d revisions are left, want %d", i, len(w.kept("report")), want)
		}
		if now := w.status("report"); len(now.Retiring) > 0 || int(now.Revisions) != want {
			t.Errorf("round %d: %+v", i, now)
		}
	}
}

// A Workflow that is edited all the time is never seen as it is.
//
// mutation: a round that waits until it is.
func TestSweeper_DeletesRevisionsOfAWorkflowThatIsEditedAllTheTime(t *testing.T) {
	w := newWorld(t)
	wf := w.workflow("report", "a", 3)
	w.crowd(wf, 3+spare+1)
	w.unseen("report")
	w.sweep()
	if kept := w.kept("report"); len(kept) != 4 || !slices.Contains(kept, wf.Status.Revision) {
		t.Errorf("%d revisions are left", len(kept))
	}
}

// mutations: a round that reads each Workflow; one that does not read what changed, or is gone.
func TestSweeper_ReadsNoWorkflowThatDidNotChange(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		w.workflow(fmt.Sprint("w-", i), "a", 3)
	}
	reads := 0
	w.s.Live = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.Workflow); ok {
				reads++
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	round := func(what string, want int) {
		t.Helper()
		reads = 0
		if w.sweep(); reads != want {
			t.Errorf("%s: %d Workflows are read, want %d", what, reads, want)
		}
	}
	round("the first round", 100)
	round("nothing changed", 0)
	w.workflow("w-1", "b", 3)
	w.gone("w-2")
	wf := &v1alpha1.Workflow{}
	w.must(w.client.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: "w-3"}, wf))
	w.crowd(wf, 3)
	round("an edit, a Workflow that is gone, and revisions that runs made", 3)
	if n := len(w.kept("w-2")); n != 0 {
		t.Errorf("%d revisions of a Workflow that is gone", n)
	}
	if now := w.status("w-3"); now.Revisions != 4 {
		t.Errorf("%+v", now)
	}
	round("nothing changed since", 0)
}

// A run that goes changes neither its Workflow nor the number of revisions.
//
// mutation: sweep that notes a Workflow whose revisions runs keep for now.
func TestSweeper_DeletesWhatARunHasKeptOnceItIsGone(t *testing.T) {
	w := newWorld(t)
	old := w.workflow("report", "a", 0).Status.Revision
	current := w.workflow("report", "b", 0).Status.Revision
	run := w.run("report", old, false)
	w.sweep()
	if kept := w.kept("report"); len(kept) != 2 {
		t.Fatalf("kept are %v", kept)
	}
	w.must(w.client.Delete(t.Context(), run))
	w.sweep()
	if kept := w.kept("report"); len(kept) != 1 || kept[0] != current {
		t.Errorf("kept are %v, want %s", kept, current)
	}
}

// mutation: deleteAll that tries once to take its mark away.
func TestSweeper_TakesItsMarkFromAWorkflowThatWasEditedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.workflow("report", "a", 0)
	wf := w.workflow("report", "b", 0)
	w.s.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.must(c.Get(ctx, client.ObjectKeyFromObject(wf), wf))
			w.edit(wf, "c")
			return c.Delete(ctx, o, opts...)
		},
	})
	w.sweep()
	if marked := w.status("report").Retiring; len(marked) > 0 {
		t.Errorf("%v are marked", marked)
	}
}

// A full quota refuses to make a revision before the API server says that it is there.
//
// mutation: Ensure that asks only where the API server says so.
func TestARevisionThatIsThereIsKeptThoughAnotherWouldBeRefused(t *testing.T) {
	w := newWorld(t)
	wf := w.workflow("report", "a", 3)
	store := &revisions.Store{Live: w.client, Owner: "test", Client: interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "controllerrevisions"}, "x", errors.New("exceeded quota"))
		},
	})}
	if content, err := store.Ensure(t.Context(), wf); err != nil || content.Revision != wf.Status.Revision {
		t.Errorf("%v", err)
	}
	wf.Spec.Template.Steps[0].Name = "other"
	if _, err := store.Ensure(t.Context(), wf); !revisions.Refused(err) {
		t.Errorf("one that is not there: %v", err)
	}
}

// mutation: look that names a revision which is marked.
func TestReconciler_NamesNoRevisionThatIsAboutToBeDeleted(t *testing.T) {
	w := newWorld(t)
	old := w.workflow("report", "a", 0).Status.Revision
	wf := w.workflow("report", "b", 0)
	w.s.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.must(c.Get(ctx, client.ObjectKeyFromObject(wf), wf))
			if again := w.edit(wf, "a"); again.RequeueAfter == 0 {
				t.Error("it is not looked at again")
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	w.sweep()
	if now := w.reconcile(wf).Status.Revision; now != old || !slices.Contains(w.kept("report"), old) {
		t.Errorf("revision %s, kept are %v", now, w.kept("report"))
	}
}
