// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// figures are what the last refresh found.
type figures struct {
	takenAt time.Time                      // zero: there was no refresh
	runs    map[string]v1alpha1.PolicyRuns // unfinished runs by workload class
	waits   map[string]lockWaits           // since the start of the process, by policy
	before  map[string]lockWaits           // waits of the refresh before; nil: there was none
	window  time.Duration                  // from before to waits
}

func (f figures) counted() bool { return !f.takenAt.IsZero() }

// due says whether it is time for a refresh.
func (f figures) due(now time.Time) bool { return !f.counted() || f.next(now) <= 0 }

// next is how long to wait for the next refresh.
func (f figures) next(now time.Time) time.Duration { return f.takenAt.Add(refreshEvery).Sub(now) }

// runsByPolicy adds up the classes that each policy governs; those of the built-in defaults
// are under "".
func (f figures) runsByPolicy(owners policy.Owners) map[string]v1alpha1.PolicyRuns {
	runs := map[string]v1alpha1.PolicyRuns{}
	for class, n := range f.runs {
		name := owners.Of(class)
		sum := runs[name]
		sum.Admitted += n.Admitted
		sum.Queued += n.Queued
		runs[name] = sum
	}
	return runs
}

// contention is what one policy's runs waited for locks between the last two refreshes; nil
// before the second.
func (f figures) contention(policyName string) *v1alpha1.LockContention {
	if f.before == nil {
		return nil
	}
	return contention(f.before[policyName], f.waits[policyName], f.window)
}

// refresh counts anew; after an error the figures are the old ones.
func (r *Reconciler) refresh(ctx context.Context, now time.Time) error {
	runs, err := r.countRuns(ctx)
	if err != nil {
		return err
	}
	waits, err := readWaits(r.Metrics)
	if err != nil {
		return err
	}
	r.last = figures{takenAt: now, runs: runs, waits: waits, before: r.last.waits, window: now.Sub(r.last.takenAt)}
	return nil
}

// countRuns counts the unfinished runs in the cache by workload class.
func (r *Reconciler) countRuns(ctx context.Context) (map[string]v1alpha1.PolicyRuns, error) {
	var list v1alpha1.WorkflowRunList
	// The objects are the cache's own: copies of 10,000 runs would cost more than all else here.
	// They must not be changed.
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	counts := map[string]v1alpha1.PolicyRuns{}
	for i := range list.Items {
		run := &list.Items[i]
		if lifecycle.Finished(run) || run.ClaimsParent() != nil { // a child is in the slot of its root
			continue
		}
		n := counts[run.Spec.WorkloadClass]
		switch {
		case lifecycle.Admitted(run):
			n.Admitted++
		case !run.Spec.Suspend: // else it stands in no line
			n.Queued++
		}
		counts[run.Spec.WorkloadClass] = n
	}
	return counts, nil
}
