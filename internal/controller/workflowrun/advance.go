package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// advance decides whether the lock is worth taking, takes it, and works under it.
func (p *pass) advance(ctx context.Context) (reconcile.Result, error) {
	if lifecycle.Finished(p.run) {
		return p.finished(ctx)
	}
	if until := p.stuck(); !until.IsZero() {
		return p.again(until), nil
	}
	p.takeKept(ctx)
	defer p.putBack(ctx)
	if err := p.desk.ForOutputs(ctx, bytesOfLetters(p.letters)); err != nil {
		return reconcile.Result{}, err
	}
	if next := p.tooEarly(); !next.IsZero() {
		return p.again(next), nil
	}
	plan := p.decide(ctx, p.prospect())
	p.mem.outputs = p.found.facts()
	if result, done, err := p.noLock(ctx, plan); done {
		return result, err
	}
	if err := p.desk.ForObject(ctx, p.mem.lastWriteBytes); err != nil {
		return reconcile.Result{}, err
	}
	lease, err := p.acquire(ctx)
	if err != nil {
		return p.withoutLock(ctx, err)
	}
	p.lease = lease
	defer func() {
		if p.lease != nil {
			p.lease.Drop(ctx) // a bug made the pass panic: nobody must wait for its lock
		}
	}()
	result, err := p.underLock(ctx, lease)
	p.returnLease(ctx, lease)
	p.lease = nil
	return p.afterLease(result), err
}

// noLock ends a pass for which the lock would be of no use, or is not of use yet.
func (p *pass) noLock(ctx context.Context, plan lifecycle.Decision) (result reconcile.Result, done bool, err error) {
	at := p.slot.ExpectedUntil(p.clock.Now())
	switch {
	case plan.Changed && !at.IsZero():
		return p.again(pacing.Earliest(plan.Wake, at)), true, nil
	case plan.Changed || p.wantsLock():
	case !p.owes():
		// Nothing to write, so no lock: what the core says of duplicates and stale results can never change back.
		p.waitedEnough()
		p.later = pacing.Earliest(p.later, p.recoverFrom())
		result, err = p.act(ctx, plan)
		return result, true, err
	case !p.payable():
		return p.again(pacing.Earliest(plan.Wake, p.clock.Now().Add(actRetryDelay))), true, nil
	}
	return reconcile.Result{}, false, nil
}

// takeUnripe makes the results that wait for others count in this pass: it may write a time-out or a cancel, and after that they would
// have no effect, though they came before it.
func (p *pass) takeUnripe() {
	if len(p.unripe) > 0 {
		p.letters, p.unripe, p.later = append(p.unripe, p.letters...), nil, time.Time{}
	}
}

// tooEarly is when the run may be written next, if it is to be written and that time has not come; else zero. It is asked before what
// a decision lacks is found out and stored: the next decision will have more results, and other outputs of items to store.
func (p *pass) tooEarly() time.Time {
	next := p.mem.lastWrite.Next(len(p.letters), pacing.LastOfMany(paced(p.letters), p.mem.lastWrite.Applied, p.run))
	if !next.After(p.clock.Now()) {
		return time.Time{}
	}
	in := p.input(p.prospect())
	in.Glance = true // what expressions give is a matter of the decision that is written
	if d := lifecycle.Decide(in); d.Changed || d.Needs.Any() {
		return next
	}
	return time.Time{}
}

// lastDispatch is when status dispatched an attempt last; zero: it dispatched none.
func lastDispatch(run *v1alpha1.WorkflowRun) (last time.Time) {
	for i := range run.Status.Steps {
		if at := run.Status.Steps[i].DispatchedAt; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}

// wantsLock says whether the lock is wanted though there may be nothing to write: because the run keeps it from its admission
// on, or because the loss of a lease has to be told, which is a matter of how the lock is to be had now.
func (p *pass) wantsLock() bool {
	return p.mem.lostLease != "" || (p.kept == nil && p.policy.RunLock.ForRun && lifecycle.Admitted(p.run))
}

// owes says whether effects of earlier writes are still to be carried out.
func (p *pass) owes() bool {
	recoverable := len(p.mem.unpublished(p.run, p.losses)) > 0 && p.recoverFrom().IsZero()
	return len(p.mem.withdrawals) > 0 || recoverable || !p.owesOnlyNATS()
}

// recoverFrom is when attempts that another process dispatched are worth the lock and a look-up. Until then
// that process publishes them, if it lives. Zero: now. A time of dispatch ahead of this process's clock is of
// a clock that differs, and delays nothing.
func (p *pass) recoverFrom() time.Time {
	_, writer := fenceOf(p.run)
	if writer == p.mem.writer || len(p.mem.unpublished(p.run, p.losses)) == 0 {
		return time.Time{}
	}
	now, last := p.clock.Now(), lastDispatch(p.run)
	if at := last.Add(p.recoverPatience); at.After(now) && !last.After(now) {
		return at
	}
	return time.Time{}
}

// owesOnlyNATS says whether no child run is to be created.
func (p *pass) owesOnlyNATS() bool {
	return len(p.mem.children.NotYetCreated(p.run, p.clock.Now())) == 0
}

// payable says whether anything that is owed can be carried out now.
func (p *pass) payable() bool { return p.nats.Connected() || !p.owesOnlyNATS() }

// underLock decides, persists and acts under a lease. Work under the lease ends when it is lost: its context is cancelled.
func (p *pass) underLock(ctx context.Context, lease *lockmgr.Lease) (reconcile.Result, error) {
	// An operator that stops ends what it is in the middle of; otherwise its successor would have to find out what happened.
	held, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })() //nolint:contextcheck // the cause is that of the lease

	p.takeUnripe()
	lock := p.lockOf(lease)
	lock.Lost = p.mem.lostLease
	d := p.decideWithin(held, lock)
	// The write has its time to itself: what it took to decide must not make it fail.
	bounded, stop := context.WithTimeout(held, passTimeout)
	defer stop()
	p.carried = carried(p.letters, d.Verdicts)
	if d.Changed || p.mustClaim(lease) {
		if lease.Err() != nil {
			return reconcile.Result{RequeueAfter: refreshDelay}, nil // after a pause of the process the lease knows first
		}
		if err := p.fence(bounded, lease.Fence()); err != nil {
			if result, err := p.unfenced(ctx, lease, err); result != nil {
				return *result, err
			}
		}
		if err := p.persist(bounded, d); err != nil {
			return p.refused(ctx, lease, err)
		}
	}
	p.lossTold()
	return p.act(bounded, d)
}

// decideWithin decides under a lease, in a time of its own.
func (p *pass) decideWithin(held context.Context, lock lifecycle.Lock) lifecycle.Decision {
	bounded, stop := context.WithTimeout(held, decideTimeout)
	defer stop()
	return p.decide(bounded, lock)
}

// mustClaim says whether attempts have to be recovered from a status that another lease wrote. Such a status may be about to
// change: its writer may still end an attempt and take its job back, and what is then published again would run twice. A write
// under this lease's fence first makes sure that nobody else can write any more. The same goes for a lease that was without its
// lock in between (a higher fence) or is now: another may have written meanwhile, and the write finds out.
func (p *pass) mustClaim(lease *lockmgr.Lease) bool {
	fence, writer := fenceOf(p.run)
	ours := writer == lease.ID() && fence == lease.Fence() && !lease.Status().Unlocked
	return !ours && len(p.mem.unpublished(p.run, p.losses)) > 0
}

// refused ends a pass whose write was not accepted: nothing of it took effect, so there is no effect to carry out.
func (p *pass) refused(ctx context.Context, lease *lockmgr.Lease, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		if lease != nil {
			lease.Drop(ctx)
		}
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		p.metrics.fenceRejections.WithLabelValues("resource_version").Inc()
	case isStaleWriter(err):
		// The stored fence is above the lease's: another wrote meanwhile. The next take starts above it.
		p.metrics.fenceRejections.WithLabelValues("fence_rule").Inc()
		if lease != nil {
			lease.Drop(ctx)
		}
	default:
		return p.unwritten(ctx, err)
	}
	result, err := p.refresh(ctx)
	if lease != nil && err == nil && !current(lease, p.newer()) {
		lease.Drop(ctx) // another wrote; a mere edit of the spec, which is a conflict as well, does not end the lease
	}
	return result, err
}

// newer is the run as this process last wrote it or read it live.
func (p *pass) newer() *v1alpha1.WorkflowRun {
	if p.mem.last != nil {
		return p.mem.last
	}
	return p.run
}

// refresh reads the run live, so that the next pass does not decide on the same stale copy again.
func (p *pass) refresh(ctx context.Context) (reconcile.Result, error) {
	live := &v1alpha1.WorkflowRun{}
	if err := p.live.Get(ctx, p.key, live); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("read run live: %w", err))
	}
	if live.UID == p.run.UID {
		live.ManagedFields = nil // as in the cache
		p.mem.last = live
	}
	return reconcile.Result{RequeueAfter: refreshDelay}, nil
}

// finished settles what still arrives for a run that has ended, takes back its last jobs, and deletes it when its time is over.
func (p *pass) finished(ctx context.Context) (reconcile.Result, error) {
	p.keeper.drop(ctx, p.run.UID) // if another ended it
	p.crews.Forget(p.key)
	p.lists.keep(p.run.UID, nil)
	d := lifecycle.Decide(p.input(p.prospect()))
	p.bury(ctx, d)
	p.settleAll(ctx, d)
	if err := errors.Join(p.withdraw(ctx), p.slots.ReleaseIfOver(ctx, &p.mem.slot, p.run)); err != nil && !d.Delete {
		return p.effectsAgain(ctx, err), nil
	}
	if d.Delete {
		err := p.client.Delete(ctx, p.run, client.Preconditions{UID: &p.run.UID}, client.PropagationPolicy("Background"))
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("delete run after its TTL: %w", err)
		}
		return reconcile.Result{}, nil
	}
	if p.mem.last == nil {
		p.memories.forget(p.key)
		return p.again(pacing.Earliest(d.Wake, p.later)), nil
	}
	// The cache has not caught up; until then this process keeps a copy of its own.
	return p.again(pacing.Earliest(pacing.Earliest(d.Wake, p.later), p.clock.Now().Add(forgetDelay))), nil
}
