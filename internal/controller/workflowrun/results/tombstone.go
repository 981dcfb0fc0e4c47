// SPDX-License-Identifier: Apache-2.0

package results

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// Tombstone is what a deleted run may have left with NATS, its workers and its tenant's quota.
type Tombstone struct {
	UID  types.UID
	Jobs []lifecycle.Withdrawal
	// Follows is the run, if it follows a Workflow and had jobs under way: where these are is a
	// matter of its steps, which it does not have. nil: Jobs has all.
	Follows *v1alpha1.WorkflowRun
	// Outputs are the names of its objects in the object store. Those of which status does not know
	// are left to package gc.
	Outputs []string
	// Tenant and Key are of the idempotency key that it may own; Key "": none.
	Tenant, Key string
	// Holding is where it has a slot or a place in the queue; nil: nowhere.
	Holding *slots.Holding
}

func entomb(run *v1alpha1.WorkflowRun) Tombstone {
	left := Tombstone{UID: run.UID, Jobs: lifecycle.InFlightJobs(run), Outputs: lifecycle.OutputNames(run), Holding: slots.HoldingOf(run)}
	if run.Spec.WorkflowRef != nil && len(lifecycle.InFlight(run)) > 0 {
		left.Follows = run
	}
	if run.Status != nil && run.Status.Tenant != "" {
		left.Tenant, left.Key = run.Status.Tenant, run.Spec.IdempotencyKey
	}
	return left
}
