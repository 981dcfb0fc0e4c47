// SPDX-License-Identifier: Apache-2.0

package results

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Tombstone is what a deleted run may have left with NATS, its workers and its tenant's quota.
type Tombstone struct {
	UID  types.UID
	Jobs []lifecycle.Withdrawal
	// Follows is what its jobs are found by, if it follows a Workflow and had some under way: where
	// these are is a matter of its steps, which it does not have. nil: Jobs has all.
	Follows *v1alpha1.WorkflowRun
	// Outputs are the names of its objects in the object store. Those of which status does not know
	// are left to package gc.
	Outputs []string
	// Tenant and Key are of the idempotency key that it may own; Key "": none.
	Tenant, Key string
	// Holding is where it has a slot or a place in the queue; nil: nowhere.
	Holding *slots.Holding
	// Holds is what it has of locks across runs, or waits for, as far as this process knows.
	Holds holds.State
	// Forgotten says that what this process watched for it, by its name, is watched no more: from
	// then on that is of another run of the name.
	Forgotten bool
}

func entomb(run *v1alpha1.WorkflowRun) Tombstone {
	left := Tombstone{UID: run.UID, Jobs: lifecycle.InFlightJobs(run), Outputs: lifecycle.OutputNames(run), Holding: slots.HoldingOf(run)}
	if ids := lifecycle.InFlight(run); run.Spec.WorkflowRef != nil && len(ids) > 0 {
		left.Follows = trackOf(run, ids)
	}
	if run.Status != nil && run.Status.Tenant != "" {
		left.Tenant, left.Key = run.Status.Tenant, run.Spec.IdempotencyKey
	}
	return left
}

// trackOf is a run with no more than its jobs in flight are found by: the whole object may be
// large, and tombstones of runs that others drove are kept for as long as this process lives.
func trackOf(run *v1alpha1.WorkflowRun, inFlight []protocol.JobID) *v1alpha1.WorkflowRun {
	steps := map[string]bool{}
	for _, id := range inFlight {
		steps[id.Step] = true
	}
	track := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: run.Namespace, Name: run.Name, UID: run.UID},
		Spec:       v1alpha1.WorkflowRunSpec{WorkflowRef: run.Spec.WorkflowRef},
		Status:     &v1alpha1.WorkflowRunStatus{Workflow: run.Status.Workflow},
	}
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		if !steps[s.Name] {
			continue
		}
		is := v1alpha1.StepStatus{Name: s.Name, Phase: s.Phase, Attempt: s.Attempt}
		if s.ForEach != nil {
			is.ForEach = &v1alpha1.ForEachStatus{Groups: s.ForEach.Groups}
		}
		track.Status.Steps = append(track.Status.Steps, is)
	}
	return track
}
