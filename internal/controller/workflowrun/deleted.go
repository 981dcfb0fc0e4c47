// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// cleanUp takes back what deleted runs of a name left, and says after which wait it goes on with
// that; 0: it need not. As with the effects of a run, an error that says when is planned for, and
// news: while Redis or NATS is away, each run that is deleted has one.
func (r *Reconciler) cleanUp(ctx context.Context, key types.NamespacedName) (wait time.Duration, err error) {
	err = r.cleanDeleted(ctx, key)
	wait = results.AsksFor(err)
	if wait == 0 {
		return 0, err
	}
	log.FromContext(ctx).Info("What a deleted run left is taken back later", "delay", wait, "cause", err.Error())
	return wait, nil
}

// cleanDeleted takes back what deleted runs of this name left behind: queued jobs and
// results that wait. The others do not wait for a run of which that fails. Those that a pass does
// not get to within cleanTimeout are the first of the next one.
func (r *Reconciler) cleanDeleted(ctx context.Context, key types.NamespacedName) (failed error) {
	gone := r.Index.TakeDeleted(key)
	if len(gone) == 0 {
		return nil
	}
	for i := range gone {
		g := &gone[i]
		if !g.Forgotten { // later, what is known of the name is of another run
			r.Liveness.Forget(key)
			r.Signals.forget(key)
			g.Forgotten = true
		}
		r.Templates.Forget(key, g.UID)
		r.lists.forget(g.UID)
		r.Index.Forget(g.UID) // a pass that read the run before it was deleted may have entered it again
		if m := r.memories.peek(key); m != nil && m.uid == g.UID {
			remember(g, m)
			m.children.LeaveLine()
			r.memories.forget(key)
		}
	}
	begun := r.Clock.Now()
	var again []results.Tombstone
	for i := range gone {
		if r.Clock.Since(begun) >= cleanTimeout {
			again = slices.Concat(gone[i:], again)
			failed = errors.Join(failed, &results.RetryError{After: actRetryDelay, Cause: errCleanedLate})
			break
		}
		if err := r.takeBack(ctx, &gone[i]); err != nil {
			again = append(again, gone[i])
			failed = errors.Join(failed, err)
		}
	}
	for _, g := range again {
		r.Index.PutBack(key, g)
	}
	return failed
}

var errCleanedLate = errors.New("earlier runs of its name took all the time of the pass")

// takeBack takes back what a deleted run left with stores and workers. After an error the tombstone
// has what is left: others want its slot, also where its jobs cannot be found.
func (r *Reconciler) takeBack(ctx context.Context, g *results.Tombstone) error {
	r.Leases.Cache.Drop(ctx, g.UID)
	if err := r.Holds.ReleaseAll(ctx, &g.Holds); err != nil {
		return err
	}
	r.Ahead.Forget(g.UID)
	r.Batches.Settler.Gone(ctx, g.UID)
	if err := errors.Join(r.findJobs(ctx, g), r.GC.Deleted(ctx, g), r.Slots.ReleaseDeleted(ctx, g.UID, g.Holding, g.Tenant, g.Key)); err != nil {
		return err
	}
	r.Dispatch.Forget(string(g.UID))
	return nil
}

// remember notes what a deleted run had that its status need not tell. It is done in any case, by
// the first pass: the next one may be over another run of the name, with a memory of its own.
func remember(g *results.Tombstone, m *memory) {
	if m.slot.Holding != nil {
		g.Holding = m.slot.Holding
	}
	g.Holds = m.holds
	if lost := m.ahead.Run(); lost != nil {
		g.Jobs = append(g.Jobs, lifecycle.InFlightJobs(lost)...)
	}
}
