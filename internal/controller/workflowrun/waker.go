// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nextPriority is that of runs whose turn it is in their tenant's queue; others have 0.
const nextPriority = 10

// queue is the part of the controller's workqueue that wakes a run.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Waker has passes made over runs. It does nothing before the controller starts.
type Waker struct {
	queue atomic.Pointer[queue]
}

// start notes the queue of the controller, which starts now.
func (w *Waker) start(q queue) { w.queue.Store(&q) }

// Wake has a pass made over a run soon; it does not block.
func (w *Waker) Wake(key types.NamespacedName) {
	if q := w.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: key})
	}
}

// WakeAfter has a pass made over a run when that time has passed, if none is made before; it does
// not block.
func (w *Waker) WakeAfter(key types.NamespacedName, after time.Duration) {
	if q := w.queue.Load(); q != nil {
		(*q).AddAfter(reconcile.Request{NamespacedName: key}, after)
	}
}

// WakeNext has a pass made over a run that may be let in, before those over others that wait
// for a pass: a slot that no run uses is time lost for its tenant, and new runs of others can
// wait for it.
func (w *Waker) WakeNext(key types.NamespacedName) {
	q := w.queue.Load()
	if q == nil {
		return
	}
	if prior, ok := (*q).(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prior.AddWithOpts(priorityqueue.AddOpts{Priority: new(nextPriority)}, reconcile.Request{NamespacedName: key})
		return
	}
	(*q).Add(reconcile.Request{NamespacedName: key})
}

// WakeAnswered has a pass made over a run whose quota answered.
func (w *Waker) WakeAnswered(key types.NamespacedName, admitted bool) {
	if admitted {
		w.WakeNext(key)
		return
	}
	w.Wake(key)
}
