package workflowrun

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// takeKept takes the lease that the run kept, if it may still be worked under. A lease that is healthy, but not as the policy
// wants it now, is given back, so that the next take is; one that cannot be renewed could most likely not be taken anew, and is
// kept under the policy that it was taken under. Only what becomes of it is as the policy says now: whoever sees an outage may want the
// runs of a class to stop, or to go on.
func (p *pass) takeKept(ctx context.Context) {
	lease := p.keeper.take(p.run.UID)
	if lease == nil {
		return
	}
	lease.OnFailure(p.policy.RunLock.Renewal.Continue)
	switch status := lease.Status(); {
	case lease.Err() != nil:
		p.noteLoss(lease)
		lease.Drop(ctx)
	case !current(lease, p.run):
		lease.Drop(ctx)
	case lease.Policy() != p.policy.RunLock && status.Failures == 0 && !status.Unlocked:
		lease.Release(ctx)
	default:
		p.kept = lease
	}
}

// current says whether the status shows no writer after a lease: if it does, the API server would refuse every write under it.
func current(lease *lockmgr.Lease, run *v1alpha1.WorkflowRun) bool {
	fence, writer := fenceOf(run)
	return lease.Fence() > fence || (lease.Fence() == fence && lease.ID() == writer)
}

// putBack returns the lease that the run keeps and that the pass did not work under.
func (p *pass) putBack(ctx context.Context) {
	if p.kept != nil {
		p.keeper.keep(ctx, p.run.UID, p.kept)
	}
}

// returnLease ends the work under a lease: it is kept for the run, or given back.
func (p *pass) returnLease(ctx context.Context, lease *lockmgr.Lease) {
	switch {
	case lease.Err() != nil:
		p.noteLoss(lease)
		lease.Drop(ctx)
	case lifecycle.Finished(p.run):
		lease.Drop(ctx) // nobody will need it again
	case lease.Policy().ForRun && lifecycle.Admitted(p.run):
		p.keeper.keep(ctx, p.run.UID, lease)
	default:
		lease.Release(ctx)
	}
}

// lossTold forgets that a lease was lost once a decision that knew of it is in status: a loss is told once.
func (p *pass) lossTold() {
	if lifecycle.Abandoned(p.run) {
		p.mem.lostLease = ""
	}
}

// noteLoss keeps the reason why a lease was lost, for the run's conditions.
func (p *pass) noteLoss(lease *lockmgr.Lease) {
	if lost, ok := errors.AsType[*lockmgr.LostError](lease.Err()); ok {
		p.mem.lostLease = string(lost.Reason)
		if p.mem.leaselessSince.IsZero() {
			p.mem.leaselessSince = p.clock.Now()
		}
	}
}

// letGo gives back the lease of the run that is remembered if it is not the one with the given UID.
func (r *Reconciler) letGo(ctx context.Context, m *memory, uid types.UID) {
	if m != nil && m.uid != uid {
		r.keeper.drop(ctx, m.uid)
	}
}

// prospect is the lock that the pass would work under: the lease that the run keeps, or one that it could take. It is enough for
// the core to say whether there is anything to do.
func (p *pass) prospect() lifecycle.Lock {
	if p.kept != nil {
		return p.lockOf(p.kept)
	}
	fence, _ := fenceOf(p.run)
	return lifecycle.Lock{
		State: lifecycle.LockHeld, Fence: fence + 1, LeaseID: "prospect", Holder: p.holder, ForRun: p.policy.RunLock.ForRun,
	}
}

// lockOf describes a lease to the core.
func (p *pass) lockOf(lease *lockmgr.Lease) lifecycle.Lock {
	s := lease.Status()
	return lifecycle.Lock{
		State: lifecycle.LockHeld, LeaseID: lease.ID(), Holder: p.holder, Fence: lease.Fence(), AcquiredAt: lease.AcquiredAt(),
		ForRun: lease.Policy().ForRun, Renewed: s.Renewed, RenewalFailures: int32(min(s.Failures, maxFailuresShown)), RenewalCause: s.Cause,
		UnlockedSince: s.UnlockedSince,
	}
}

// maxFailuresShown bounds the renewals failed in a row that status counts.
const maxFailuresShown = 1_000_000

// afterLease brings the next pass forward if what the run says of its lock is out of date.
func (p *pass) afterLease(result reconcile.Result) reconcile.Result {
	limit := time.Duration(0)
	switch {
	case lifecycle.Finished(p.run):
	case p.mem.lostLease != "" || lifecycle.Abandoned(p.run):
		limit = refreshDelay // the loss, or that it is over, is told at once
	case lifecycle.RenewalFailing(p.run) && !p.keeper.has(p.run.UID):
		limit = actRetryDelay // of a lease that was given back
	}
	if limit > 0 && (result.RequeueAfter == 0 || result.RequeueAfter > limit) {
		result.RequeueAfter = limit
	}
	return result
}
