// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// tell publishes the begin, the end and the warnings of a run; and one event per transition and per
// job that NATS took, where people ask for step events. An event costs the API server as much CPU
// as a status write of a short run, and status has what step events say.
func (r *Reconciler) tell(run *v1alpha1.WorkflowRun, mem *memory, list []lifecycle.Event) {
	detailed := stepEvents(run, r.StepEvents)
	for _, e := range list {
		if e.Detail && !detailed {
			continue
		}
		mem.events++
		r.Events.Eventf(run, nil, e.Type, e.Reason, "Advance", "%s", e.Message)
	}
}

// stepEvents says whether a run has step events: as its annotation says, else as the operator does.
func stepEvents(run *v1alpha1.WorkflowRun, byDefault bool) bool {
	switch run.Annotations[v1alpha1.AnnotationStepEvents] {
	case "true":
		return true
	case "false":
		return false
	default:
		return byDefault
	}
}
