// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

func (w *world) run(class string, status *v1alpha1.WorkflowRunStatus) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "run-", Namespace: "default"},
		Spec: v1alpha1.WorkflowRunSpec{
			WorkloadClass: class, Steps: []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "demo.echo"}}},
		},
	}
	if err := w.client.Create(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
	if status != nil {
		w.writeStatus(run, status)
	}
	return run
}

func (w *world) suspend(run *v1alpha1.WorkflowRun) {
	w.t.Helper()
	run.Spec.Suspend = true
	if err := w.client.Update(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) writeStatus(run *v1alpha1.WorkflowRun, status *v1alpha1.WorkflowRunStatus) {
	w.t.Helper()
	run.Status = status
	if err := w.client.Status().Update(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) expectRuns(want map[string]v1alpha1.PolicyRuns) {
	w.t.Helper()
	got := map[string]v1alpha1.PolicyRuns{}
	for name := range want {
		if runs := w.status(name).Runs; runs != nil {
			got[name] = *runs
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// mutation: countRuns that does not look at lifecycle.Finished, or counts children, or runs that
// are suspended before their admission, or leaves out those that are suspended later; runsByPolicy
// that counts the classes of spec, or none for "*"; a refresh at each pass: each makes a part of
// this story fail.
func TestRunsAreCountedByTheirPolicy(t *testing.T) {
	w := newWorld(t)
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	in := &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &now}}
	queued := &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunQueued, Admission: &v1alpha1.AdmissionStatus{QueuedAt: &now}}
	ended := &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunFailed, Admission: in.Admission, CompletedAt: &now}
	endedInQueue := &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunCancelled, Admission: queued.Admission, CompletedAt: &now}
	w.create("a-web", "web", "shop")
	w.create("b-rest", "*", "web")
	first := w.run("web", in)
	w.run("shop", in.DeepCopy())
	w.run("shop", queued)
	child := in.DeepCopy()
	child.Parent = &v1alpha1.ParentStatus{Name: "boss", UID: "u-1"}
	w.run("shop", child) // in the slot of its root
	w.run("shop", nil)
	w.run("shop", ended)
	w.run("shop", endedInQueue)
	w.run("batch", in.DeepCopy())
	w.run("nightly", queued.DeepCopy())
	w.suspend(w.run("shop", nil))            // it does not stand in line
	w.suspend(w.run("batch", in.DeepCopy())) // it keeps its slot

	w.pass()
	want := map[string]v1alpha1.PolicyRuns{"a-web": {Admitted: 2, Queued: 2}, "b-rest": {Admitted: 2, Queued: 1}}
	w.expectRuns(want)

	first.Status.CompletedAt, first.Status.Phase = &now, v1alpha1.RunSucceeded
	w.writeStatus(first, first.Status)
	w.clock.SetTime(w.clock.Now().Add(refreshEvery - time.Millisecond))
	w.pass()
	w.expectRuns(want)
	w.clock.SetTime(w.clock.Now().Add(time.Millisecond))
	w.pass()
	w.expectRuns(map[string]v1alpha1.PolicyRuns{"a-web": {Admitted: 1, Queued: 2}, "b-rest": {Admitted: 2, Queued: 1}})

	// A class that changes hands takes its runs along, in the same write.
	if err := w.client.Delete(t.Context(), w.get("a-web")); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.expectRuns(map[string]v1alpha1.PolicyRuns{"b-rest": {Admitted: 3, Queued: 3}})
	if got := w.status("b-rest").Effective.Classes; got != "*, web" {
		t.Errorf("the policy that is left governs %q", got)
	}
}

// Admission locks are polled every few milliseconds, so their retries have a figure of their own:
// added to those of run locks they would hide them.
//
// mutation: contention computed from one reading, or from the runs of all policies, or from the
// retries of all paths, makes this fail.
func TestContentionIsWhatWasAddedToTheMetrics(t *testing.T) {
	w := newWorld(t)
	w.create("batch", "batch")
	w.create("quiet", "quiet")
	w.metrics.busy("batch", "result", 1000)
	w.metrics.waited("batch", "reconcile", "acquired", 1000, 300*time.Millisecond)
	w.pass()
	if got := w.status("batch").Contention; got != nil {
		t.Errorf("with one look at the metrics there is a figure already: %+v", got)
	}

	w.metrics.busy("batch", "reconcile", 9)
	w.metrics.busy("batch", "result", 3)
	w.metrics.busy("batch", "admission", 13_949)
	w.metrics.busy("other", "result", 500)
	w.metrics.waited("batch", "reconcile", "acquired", 60, 50*time.Millisecond)
	w.metrics.waited("batch", "result", "acquired", 40, 150*time.Millisecond)
	w.metrics.waited("batch", "result", "busy", 100, 300*time.Millisecond)
	w.metrics.waited("other", "result", "acquired", 100, 300*time.Millisecond)
	w.refresh()
	// The 95th of 100 is the 35th of the 40 between 100 and 200 ms; 12 in half a minute are
	// 24 a minute.
	busy := v1alpha1.LockContention{BusyRetriesPerMinute: 24, P95LockWaitMillis: 188, P99LockWaitMillis: 198}
	busy.Paths = []v1alpha1.PathContention{
		{Path: v1alpha1.PathReconcile, BusyRetriesPerMinute: 18, P95LockWaitMillis: 95, P99LockWaitMillis: 99},
		{Path: v1alpha1.PathResult, BusyRetriesPerMinute: 6, P95LockWaitMillis: 195, P99LockWaitMillis: 199},
		{Path: v1alpha1.PathAdmission, BusyRetriesPerMinute: 27_898},
	}
	w.expectContention(map[string]v1alpha1.LockContention{"batch": busy, "quiet": atRest()})

	w.refresh()
	w.expectContention(map[string]v1alpha1.LockContention{"batch": atRest(), "quiet": atRest()})

	// A new leader has one reading only.
	w.metrics.busy("batch", "result", 5)
	w.refresh()
	before := w.status("batch").Contention
	w.r = &Reconciler{Client: w.r.Client, Clock: w.clock, Metrics: prometheus.NewRegistry(), Ballots: ballot.NewBox(nil, nil)}
	w.pass()
	if diff := cmp.Diff(before, w.status("batch").Contention); diff != "" || before.BusyRetriesPerMinute != 10 {
		t.Errorf("figures of the leader before (-before +after):\n%s", diff)
	}
	w.refresh()
	w.expectContention(map[string]v1alpha1.LockContention{"batch": atRest()})
}

// atRest is the contention of a policy whose locks nobody waited for.
func atRest() v1alpha1.LockContention {
	return v1alpha1.LockContention{Paths: []v1alpha1.PathContention{
		{Path: v1alpha1.PathReconcile}, {Path: v1alpha1.PathResult}, {Path: v1alpha1.PathAdmission},
	}}
}

func (w *world) expectContention(want map[string]v1alpha1.LockContention) {
	w.t.Helper()
	got := map[string]v1alpha1.LockContention{}
	for name := range want {
		if c := w.status(name).Contention; c != nil {
			got[name] = *c
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("contention (-want +got):\n%s", diff)
	}
}

// mutation: a status that holds the time of its refresh, or a write without a comparison,
// makes this fail.
func TestAHundredPoliciesAtRestCostNoWrites(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		w.create(fmt.Sprintf("p-%03d", i), fmt.Sprintf("class-%d", i), "shared")
	}
	w.run("class-7", nil)
	w.pass()
	w.refresh()
	if n := w.writes.Swap(0); n != 200 {
		t.Errorf("two passes over 100 new policies tried %d writes; want 200", n)
	}
	for range 5 {
		w.pass()
		w.refresh()
	}
	if n := w.writes.Load(); n != 0 {
		t.Errorf("%d writes although no figure changed", n)
	}
	w.metrics.busy("p-042", "result", 1)
	w.refresh()
	if n := w.writes.Load(); n != 1 {
		t.Errorf("%d writes for one policy whose figures changed", n)
	}
}

// mutation: a write that is forced through, without the resourceVersion that was read, loses the
// user's change; an error that ends the pass leaves the other policy without a status.
func TestAUserChangesAPolicyWhileItsStatusIsWritten(t *testing.T) {
	w := newWorld(t)
	w.create("a", "web")
	w.create("b", "batch")
	w.beforeWrite = func(o client.Object) {
		if o.GetName() != "a" {
			return
		}
		p := w.get("a")
		p.Spec.RunLock.TTLSeconds = 60
		if err := w.client.Update(t.Context(), p); err != nil {
			t.Error(err)
		}
		w.beforeWrite = nil
	}
	res, err := w.try()
	if err != nil || res.RequeueAfter != conflictPause {
		t.Fatalf("reconcile: %+v, %v; want to come again soon, without an error", res, err)
	}
	w.status("b")
	if p := w.get("a"); p.Status.ObservedGeneration != -1 || p.Spec.RunLock.TTLSeconds != 60 {
		t.Errorf("the user's change met %+v", p)
	}
	w.pass()
	if got := w.status("a").Effective.RenewIntervalMillis; got != 20_000 {
		t.Errorf("the interval of a TTL of 60 s is %d ms", got)
	}
}

// mutation: a refresh whose error ends the pass makes this fail.
func TestWhatTheSpecSaysIsWrittenWithoutFigures(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]func(w *world){
		"the metrics cannot be read": func(w *world) {
			w.r.Metrics = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, broken })
		},
		"the runs cannot be listed": func(w *world) { w.r.Client = noRuns{w.r.Client, broken} },
	}
	for name, harm := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			runs, metrics := w.r.Client, w.r.Metrics
			w.create("a", "web")
			harm(w)
			for range 2 {
				if _, err := w.try(); !errors.Is(err, broken) {
					t.Errorf("reconcile: %v", err)
				}
			}
			got := w.status("a")
			if got.Effective == nil || len(got.Conditions) != 2 || got.Runs != nil || got.Contention != nil {
				t.Errorf("status is %+v", got)
			}
			w.r.Client, w.r.Metrics = runs, metrics
			w.pass()
			w.expectRuns(map[string]v1alpha1.PolicyRuns{"a": {}})
		})
	}
}

// noRuns is a client that cannot list runs.
type noRuns struct {
	client.Client
	err error
}

// List implements client.Reader.
func (c noRuns) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.WorkflowRunList); ok {
		return c.err
	}
	return c.Client.List(ctx, list, opts...)
}

func TestWithoutPoliciesNothingIsCounted(t *testing.T) {
	w := newWorld(t)
	w.r.Metrics = nil
	if res, err := w.try(); err != nil || !res.IsZero() {
		t.Errorf("reconcile: %+v, %v", res, err)
	}
}
