// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

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

// maxWaitingEvents bounds the events that wait to be written, in memory: about 20 MiB. Warnings may
// be twice as many.
const maxWaitingEvents = 1000

// BoundedEvents leaves events out while too many wait: under a load that lasts, more are made than
// the API server takes beside its other work. All that they tell is in status, too.
type BoundedEvents struct {
	events.EventRecorder
	// Waiting is how many events wait to be written.
	Waiting func() int
	Dropped prometheus.Counter
}

// Eventf implements events.EventRecorder.
func (b *BoundedEvents) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	limit := maxWaitingEvents
	if kind == corev1.EventTypeWarning {
		limit *= 2
	}
	if b.Waiting() >= limit {
		b.Dropped.Inc()
		return
	}
	b.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
}
