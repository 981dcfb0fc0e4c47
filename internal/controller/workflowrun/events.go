package workflowrun

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

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
