// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: Of without those of the run makes this fail.
func TestOf_NamesAllObjectsOfARun(t *testing.T) {
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Steps: make([]v1alpha1.StepStatus, 2)}}
	run.Status.Steps[1].OutputRef = &v1alpha1.OutputReference{Name: "of a step"}
	run.Status.OutputsRef = &v1alpha1.OutputReference{Name: "of the run"}
	if diff := cmp.Diff([]string{"of a step", "of the run"}, Of(run)); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}
