// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/audit"
)

// What Redis has for an item that status does not name is about to be written, or is over: only the
// latter is left.
//
// mutation: runOf that knows the tickets of status only makes this fail.
func TestTicketsOfItemsThatStatusDoesNotName(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	run.UID = "u"
	run.Spec.Steps = []v1alpha1.Step{{Name: "all", ForEach: &v1alpha1.ForEach{Locks: []v1alpha1.LockRequest{{Mutex: "x"}}}}}
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "all", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
		Begun: 2, Locks: []v1alpha1.ItemLocks{{Item: 1, Locks: []v1alpha1.LockHold{{Name: "x", Permits: 1, Fence: 7}}}},
	}}}}
	got := runOf(run, seenOf{tickets: []string{"u/all/0", "u/all/5", "u/none/1"}}, nil).Tickets
	want := map[string]audit.Ticket{"u/all/0": {Over: true}, "u/all/1": {Fence: 7}, "u/all/5": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tickets (-want +got):\n%s", diff)
	}
}

// mutation: ticketsOf that looks at the run anew for each ticket makes this fail: with 200 steps it
// is the square of that, twice, for each run of a Workflow in the cluster.
func TestARunOfManyStepsIsLookedAtOnce(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	run.UID, run.Spec.WorkflowRef = "u", &v1alpha1.WorkflowReference{Name: "w"}
	run.Status = &v1alpha1.WorkflowRunStatus{}
	for i := range 200 {
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprint("s", i), Phase: v1alpha1.StepSucceeded})
	}
	if n := testing.AllocsPerRun(3, func() { ticketsOf(run, nil) }); n > 10_000 {
		t.Errorf("it takes %.0f allocations", n)
	}
}

// crowd is an API server that has many runs, and tells so with each page.
type crowd struct {
	client.Reader

	asked int
}

func (c *crowd) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	c.asked++
	l.SetContinue("more")
	l.SetRemainingItemCount(new(int64(2 * maxRuns)))
	return meta.SetList(l, []runtime.Object{&v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(c.asked))}}})
}

// mutation: runs that reads as many as it may before it finds out.
func TestRunsThatAreTooManyAreNotRead(t *testing.T) {
	api := &crowd{}
	err := (&Stores{API: api}).runs(t.Context(), &audit.Snapshot{}, nil)
	if err == nil || !strings.Contains(err.Error(), "more than 100000 runs") || api.asked != 1 {
		t.Errorf("%v, after %d pages", err, api.asked)
	}
}
