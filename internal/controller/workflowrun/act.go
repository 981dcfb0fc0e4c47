// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// act carries out what follows from the persisted state. Each effect is idempotent and remembered
// until it is done, so a failure repeats it. After a crash jobs are recovered and results are
// delivered again; package gc makes up for withdrawals.
func (p *pass) act(ctx context.Context, d lifecycle.Decision) (reconcile.Result, error) {
	failed := p.release(ctx)              // first: somebody may be waiting for it
	p.jobs.Tidy(p.run, p.mem.withdrawals) // what was answered holds no room that the next steps need
	failed = errors.Join(failed, publish(ctx, p, d.Dispatch), p.recoverJobs(ctx))
	p.batch.Bury(ctx, d)
	p.questions.Heard(d, p.batch)
	ahead := p.batch.Settle(ctx, d, p.overdue)
	failed = errors.Join(failed, p.createChildren(ctx, d.Create)) // it may wait for webhooks: results do not
	return conclude(ctx, p, d, ahead, failed)
}

// release gives back what the run does not need any more: its slot, mostly also while it waits for
// its locks, and locks across runs.
func (p *pass) release(ctx context.Context) error {
	failed := p.r.Slots.ReleaseIfOver(ctx, &p.mem.slot, p.run)
	if p.locks.WaitsForOwn(p.run) && !lifecycle.Admitted(p.run) {
		failed = errors.Join(failed, p.r.Slots.AwaitLocks(ctx, &p.mem.slot, p.run))
		if p.mem.slot.Holding != nil {
			p.later = pacing.Earliest(p.later, p.r.Clock.Now().Add(idlePause))
		}
	}
	failed = errors.Join(failed, p.r.Holds.Release(ctx, &p.mem.holds, p.run, p.locks))
	if p.mem.holds.Kept() {
		p.later = pacing.Earliest(p.later, p.r.Clock.Now().Add(belowPause))
	}
	return failed
}

// runAhead carries out a decision that is written later. Nothing is settled before.
func runAhead(ctx context.Context, p *pass, d lifecycle.Decision) (reconcile.Result, error) {
	if p.ahead.Stored.Unwritten() {
		p.lock.Wrote() // what is kept says that this lease has the run
		p.ahead.Trial = p.trial.Trial
	}
	p.run = p.ahead.Keep(&d.Status, p.batch.Keep(&d))
	p.lock.Ahead = true
	p.r.Metrics.decisionsAhead.Inc()
	p.jobs.Tidy(p.run, p.mem.withdrawals)
	failed := publish(ctx, p, d.Dispatch)
	if p.ahead.LooksFirst() {
		failed = errors.Join(failed, p.recoverJobs(ctx))
	}
	return conclude(ctx, p, d, false, failed)
}

// conclude carries out what is left of the effects of a decision, and ends the pass. Ahead says
// that the run is to be read live, and failed is why effects before failed.
func conclude(ctx context.Context, p *pass, d lifecycle.Decision, ahead bool, failed error) (reconcile.Result, error) {
	if p.lock.Held != nil {
		p.mem.toDesk = p.outputs.Enough
	}
	p.record(d)
	p.r.Metrics.ended(p.run, p.mem)
	failed = errors.Join(failed, p.withdraw(ctx))
	p.later = pacing.Earliest(p.later, p.watchWorkers())
	p.r.Signals.watch(p.run)
	noteRoom(p)
	if f, ok := errors.AsType[*jobs.FencedError](failed); ok && p.lock.Held != nil {
		return p.fencedOut(ctx, f)
	}
	if failed != nil {
		return p.effectsAgain(ctx, failed), nil
	}
	p.mem.failing = ""
	if ahead {
		return p.refresh(ctx)
	}
	return p.again(p.nextLook(d.Wake)), nil
}

// dropUnused drops outputs to which the status does not refer any more, when the pass has neither
// lock nor desk: they may be thousands. It ends early, when the partition is to be handed over: the
// next owner may want one again, and not store what is there.
func dropUnused(ctx, early context.Context, p *pass) {
	bounded, stop := context.WithTimeout(ctx, passTimeout)
	defer stop()
	for _, end := range []context.Context{p.while, early} {
		defer context.AfterFunc(end, stop)() //nolint:contextcheck // those of the partition
	}
	p.outputs.DropUnused(bounded)
}

// publish publishes attempts that begin, unless another process may have: those are recovered.
func publish(ctx context.Context, p *pass, fresh []lifecycle.Job) error {
	if len(fresh) > 0 && p.ahead.LooksFirst() {
		return nil
	}
	return p.jobs.Publish(ctx, p.run, p.lock.Held, fresh)
}

// recoverJobs brings attempts to NATS of which this process does not know whether they got there:
// as many as a pass may render, and the others in the next ones, at a desk. It leaves the other
// effects of the pass some of their time.
func (p *pass) recoverJobs(ctx context.Context) error {
	if p.lock.Held == nil {
		return nil // the holder of the lock may be about to publish the same; without it waiting is all that is safe
	}
	lacks := lifecycle.OutlinesOf(p.run, p.jobs.Lacks(p.run))
	if len(lacks) == 0 {
		return nil
	}
	bounded, stop := context.WithTimeout(ctx, recoverTimeout)
	defer stop()
	more, err := p.jobs.Recover(bounded, p.run, p.lock.Held, lacks, p.outputs.Jobs(p.run, knownLists(p)).Input)
	if more {
		p.later = pacing.Earliest(p.later, p.r.Clock.Now())
	}
	return err
}

// lookUpJobs finds out now and then whether NATS has lost jobs of the run, which are recovered
// then. A result in hand, or the end of the run here, does not wait for it.
func (p *pass) lookUpJobs(ctx context.Context) {
	if p.ahead.Closes || !p.batch.Empty() || !p.r.NATS.Connected() {
		return
	}
	bounded, stop := context.WithTimeout(ctx, lookUpTimeout)
	defer stop()
	defer context.AfterFunc(p.while, stop)() //nolint:contextcheck // that of the partition
	gone, err := p.jobs.LookUp(bounded, p.run)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Jobs are looked for later", "cause", err.Error())
	}
	if len(gone) > 0 {
		log.FromContext(ctx).Info("Jobs are gone from NATS and have no results; they are looked up and published again", "jobs", len(gone), "first", gone[0].String())
	}
}

// createChildren creates the child runs that status names.
func (p *pass) createChildren(ctx context.Context, fresh []lifecycle.ChildToCreate) error {
	if p.lock.Held == nil {
		return nil
	}
	render := func(ctx context.Context, step string) (lifecycle.ChildToCreate, error) {
		return p.outputs.Child(ctx, p.run, step)
	}
	news, err := p.r.Children.Create(ctx, p.while, &p.mem.children, p.run, p.lock.Held, fresh, render)
	if news || p.outputs.Enough {
		p.later = pacing.Earliest(p.later, p.r.Clock.Now())
	}
	return err
}

// overdue gives a result back that has waited too long for the object store.
func (p *pass) overdue(one *results.Pending) *results.Settlement {
	if !p.outputs.Lacks(one.Fact.Result.OutputRef) || p.r.Clock.Since(one.Since) < resultPatience {
		return nil
	}
	s := p.batch.GiveBack(one, p.lock.Wait(bus.ClassStoreUnavailable), bus.ClassStoreUnavailable, p.outputs.Lacking)
	return &s
}

// record publishes events, and counts the waits that workers were granted.
func (p *pass) record(d lifecycle.Decision) {
	p.r.tell(p.run, p.mem, slices.Concat(d.Events, p.jobs.Events()))
	for _, wait := range d.Granted {
		p.r.Delays.ObserveRetryDelay(bus.ClassWorkerRequested, wait)
	}
}

// withdraw takes jobs back from NATS and tells their workers to stop.
func (p *pass) withdraw(ctx context.Context) error {
	if len(p.mem.withdrawals) == 0 {
		return nil
	}
	left, err := gc.Withdraw(ctx, p.r.GC.Jobs, string(p.run.UID), p.mem.withdrawals)
	p.mem.withdrawals = left
	p.jobs.Tidy(p.run, left)
	return err
}

// unfenced ends a pass that could not fence the attempts of a run which another process wrote: the
// run is not written before that is tried again.
func (p *pass) unfenced(ctx context.Context, cause error) (reconcile.Result, error) {
	if f, ok := errors.AsType[*jobs.FencedError](cause); ok {
		return p.fencedOut(ctx, f)
	}
	if noteRoom(p); p.jobs.OnlyShare() {
		p.notYet = pacing.Earliest(p.mem.noRoom.tryAt, p.jobs.GoesOnAt())
		log.FromContext(ctx).V(1).Info("The run is not written yet", "until", p.notYet, "cause", cause.Error())
		return p.again(p.notYet), nil
	}
	result := p.effectsAgain(ctx, cause)
	p.notYet = p.r.Clock.Now().Add(result.RequeueAfter)
	return result, nil
}

// fencedOut ends the lease: NATS knows of a writer with a higher fence. If that one is the holder
// now, the lock or the API server says so; if not, say because its lock was lost, the next lease is
// taken above its fence.
func (p *pass) fencedOut(ctx context.Context, cause *jobs.FencedError) (reconcile.Result, error) {
	p.r.Metrics.fenceRejections.WithLabelValues("nats_fence").Inc()
	log.FromContext(ctx).Info("The lease ends: another has taken over", "cause", cause.Error())
	p.mem.lock.Raise(cause.By)
	result, err := p.refresh(ctx) // before the lease ends, and what is done under it
	p.lock.Drop(ctx)
	return result, err
}
