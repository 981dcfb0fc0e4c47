package workflowrun

import (
	"context"
)

// watchNATS wakes all runs that have not ended whenever NATS is found to have lost data, or an outage of it began or ended, until ctx
// ends. Their next passes look up what they had dispatched, and tell of the outage. A pass that is made at the moment is made again: the
// queue sees to that.
func (r *Reconciler) watchNATS(ctx context.Context, lost, outage <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-lost:
		case <-outage:
		}
		for _, key := range r.index.NotEnded() {
			r.wake(key)
		}
	}
}
