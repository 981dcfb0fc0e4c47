// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// AttemptDeadline is when no result of an attempt is waited for any more, whatever its worker
// says in between.
func AttemptDeadline(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, p *Plan, i int, dispatchedAt time.Time) time.Time {
	step := &p.Steps[i]
	deadline := dispatchedAt.Add(status.StartTimeout(step) + status.AttemptTimeout(step))
	end := status.ActiveDeadline(run, st)
	if p.IsFinally(i) {
		end = status.FinallyEnd(run, st)
	}
	if !end.IsZero() && end.Before(deadline) {
		deadline = end
	}
	return deadline.UTC()
}
