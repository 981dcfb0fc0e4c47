// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// FenceOf returns the stored fence and the lease that wrote it; 0 and "" before the first write.
func FenceOf(run *v1alpha1.WorkflowRun) (int64, string) {
	if run.Status == nil || run.Status.Fence == nil {
		return 0, ""
	}
	if run.Status.Lock == nil {
		return *run.Status.Fence, ""
	}
	return *run.Status.Fence, run.Status.Lock.LeaseID
}

// current says whether the status shows no writer after a lease: if it does, the API server would
// refuse every write under it.
func current(lease *lockmgr.Lease, run *v1alpha1.WorkflowRun) bool {
	fence, writer := FenceOf(run)
	return lease.Fence() > fence || (lease.Fence() == fence && lease.ID() == writer)
}
