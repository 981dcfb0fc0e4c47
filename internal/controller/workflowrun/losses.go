package workflowrun

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
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
		for _, key := range r.directory.notEnded() {
			r.wake(key)
		}
	}
}

// notEnded are the runs that have not ended. The cache may lag, so one that it calls new may have dispatched jobs; an end is for ever.
func (d *directory) notEnded() []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []types.NamespacedName
	for _, e := range d.known {
		switch v1alpha1.RunPhase(e.phase) {
		case v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunTimedOut:
		default:
			keys = append(keys, e.key)
		}
	}
	return keys
}
