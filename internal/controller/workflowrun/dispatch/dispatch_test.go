// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func attempt(step string) protocol.JobID {
	return protocol.JobID{RunUID: "uid", Step: step, Item: protocol.NoItem, Attempt: 1}
}

func TestState_UnpublishedAndPrune(t *testing.T) {
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{}}
	run.UID = "uid"
	for i, p := range []v1alpha1.StepPhase{v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepSucceeded} {
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprintf("s%d", i+1), Phase: p, Attempt: 1})
	}
	st := &State{published: map[protocol.JobID]uint64{attempt("s2"): 1, attempt("s3"): 1, attempt("old"): 1}}
	if diff := cmp.Diff([]protocol.JobID{attempt("s1")}, st.Unpublished(run, 1)); diff != "" {
		t.Errorf("unpublished (-want +got):\n%s", diff)
	}
	st.Prune(run)
	if diff := cmp.Diff(map[protocol.JobID]uint64{attempt("s2"): 1}, st.published); diff != "" {
		t.Errorf("after prune (-want +got):\n%s", diff)
	}
}
