// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func attempt(step string) protocol.JobID {
	return protocol.JobID{RunUID: "uid", Step: step, Item: protocol.NoItem, Attempt: 1}
}

// mutation: Prune that forgets one of the maps makes this fail.
func TestState_UnpublishedAndPrune(t *testing.T) {
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{}}
	run.UID = "uid"
	for i, p := range []v1alpha1.StepPhase{v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepSucceeded} {
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprintf("s%d", i+1), Phase: p, Attempt: 1})
	}
	st := &State{
		published: map[protocol.JobID]uint64{attempt("s2"): 1, attempt("s3"): 1, attempt("old"): 1},
		untold:    map[protocol.JobID]bool{attempt("s2"): true, attempt("s3"): true},
		lost:      map[protocol.JobID]string{attempt("s2"): "", attempt("s3"): ""},
		sizes:     map[protocol.JobID]int{attempt("s2"): 1, attempt("s3"): 1},
	}
	if diff := cmp.Diff([]protocol.JobID{attempt("s1")}, st.Unpublished(run, 1)); diff != "" {
		t.Errorf("unpublished (-want +got):\n%s", diff)
	}
	st.Prune(run)
	if diff := cmp.Diff(map[protocol.JobID]uint64{attempt("s2"): 1}, st.published); diff != "" {
		t.Errorf("after prune (-want +got):\n%s", diff)
	}
	for name, left := range map[string]int{"untold": len(st.untold), "lost": len(st.lost), "sizes": len(st.sizes)} {
		if left != 1 {
			t.Errorf("%s: %d are left", name, left)
		}
	}
}

// Each write of a run whose jobs wait for room prunes, and thousands of them may wait.
//
// mutation: Prune that looks for each of what it remembers in a list of all that is in flight: it
// takes 400 times as long for 20 times as many.
func TestState_PruneTakesNoLongerForEachOfMany(t *testing.T) {
	prune := func(n int) (shortest time.Duration) {
		run := &v1alpha1.WorkflowRun{}
		run.UID, run.Status = "uid", &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{
			Name: "all", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{Total: int32(n), Begun: int32(n), Groups: []v1alpha1.ItemGroup{{
				Items: fmt.Sprintf("0-%d", n-1), Phase: v1alpha1.StepDispatched, Attempt: 1,
			}}},
		}}}
		st := &State{sizes: map[protocol.JobID]int{}, untold: map[protocol.JobID]bool{}, lost: map[protocol.JobID]string{}}
		for _, id := range lifecycle.InFlight(run) {
			st.sizes[id], st.untold[id] = 1, true
		}
		shortest = math.MaxInt64
		for range 3 {
			begin := time.Now()
			st.Prune(run)
			shortest = min(shortest, time.Since(begin))
		}
		if len(st.sizes) != n || len(st.untold) != n {
			t.Errorf("%d and %d are left of %d", len(st.sizes), len(st.untold), n)
		}
		return shortest
	}
	var few, many time.Duration
	for range 20 { // other processes may have the processor meanwhile
		if few, many = prune(500), prune(10_000); many <= 100*few {
			return
		}
	}
	t.Errorf("it takes %s for 500 attempts and %s for 10,000", few, many)
}
