// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// WatchNATS wakes all runs that have not ended whenever NATS is found to have lost data, or an
// outage of it began or ended, until its context ends. Their next passes look up what they had
// dispatched, and tell of the outage. A pass that is made at the moment is made again: the queue
// sees to that.
func (r *Reconciler) WatchNATS(lost, outage <-chan struct{}) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-lost:
			case <-outage:
			}
			r.WakeNotEnded()
		}
	})
}

// WakeNotEnded has a pass made over each run that has not ended; it does not block. Where the wall
// clock was set, the timers of runs are those of the clock before.
func (r *Reconciler) WakeNotEnded() {
	for _, key := range r.Index.NotEnded() {
		r.Waker.Wake(key)
	}
}
