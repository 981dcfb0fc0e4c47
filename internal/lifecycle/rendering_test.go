// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// JobOf renders one job again, as after a crash.
func JobOf(run *v1alpha1.WorkflowRun, id protocol.JobID, payloads Payloads) (Job, error) {
	return render.New(run, payloads, nil).Job(id)
}

// InputOutputs names what JobOf needs of the object store.
func InputOutputs(run *v1alpha1.WorkflowRun, id protocol.JobID) []protocol.OutputRef {
	return render.New(run, nil, nil).Needs(id)
}
