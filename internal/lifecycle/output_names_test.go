// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: OutputNames without those of items, or without those of the run, makes this fail.
func TestOutputNames_AreAllObjectsOfARun(t *testing.T) {
	if names := OutputNames(&v1alpha1.WorkflowRun{}); names != nil {
		t.Errorf("a run without status: %v", names)
	}
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Steps: make([]v1alpha1.StepStatus, 2)}}
	run.Status.Steps[0].ForEach = &v1alpha1.ForEachStatus{OutputRefs: []v1alpha1.OutputReference{{Name: "of an item"}}}
	run.Status.Steps[1].OutputRef = &v1alpha1.OutputReference{Name: "of a step"}
	run.Status.OutputsRef = &v1alpha1.OutputReference{Name: "of the run"}
	if diff := cmp.Diff([]string{"of an item", "of a step", "of the run"}, OutputNames(run)); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}
