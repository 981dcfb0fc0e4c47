package workflowrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// actRetryDelay is the wait before effects that could not be carried out are tried again.
const actRetryDelay = time.Second

// act carries out what follows from the persisted state. Each effect is idempotent and remembered until it is done, so a
// failure repeats it. After a crash jobs are recovered and results come again; withdrawals are made up for by the janitor.
func (p *pass) act(ctx context.Context, d lifecycle.Decision) (reconcile.Result, error) {
	failed := p.slots.ReleaseIfOver(ctx, &p.mem.slot, p.run) // first: somebody may be waiting for the slot
	failed = errors.Join(failed, p.dispatch(ctx, d.Dispatch), p.recoverJobs(ctx), p.createChildren(ctx, d.Create))
	p.bury(ctx, d)
	p.answersHeard(d)
	ahead := p.settleAll(ctx, d)
	p.record(d)
	failed = errors.Join(failed, p.withdraw(ctx))
	p.dropUnused(ctx)
	p.mem.prune(p.run)
	p.later = pacing.Earliest(p.later, p.watchWorkers())
	if f, ok := errors.AsType[*jobs.FencedError](failed); ok && p.lease != nil {
		return p.fencedOut(ctx, p.lease, f)
	}
	if failed != nil {
		return p.effectsAgain(ctx, failed), nil
	}
	if ahead {
		return p.refresh(ctx)
	}
	return p.again(p.nextLook(d.Wake)), nil
}

// effectsAgain has effects that failed tried again. An error that says when is planned for, so it is logged as news and not as an error
// with a stack trace: while Redis or NATS is away, each run that ends has one.
func (p *pass) effectsAgain(ctx context.Context, failed error) reconcile.Result {
	wait := retryDelay(failed)
	switch l := log.FromContext(ctx); {
	case ctx.Err() != nil: // the lease was lost or the operator stops: both are reported where they happen
	case saysWhen(failed) > 0:
		l.Info("Effects are tried again", "delay", wait, "cause", failed.Error())
	default:
		l.Error(failed, "Effects are tried again", "delay", wait)
	}
	return p.again(p.clock.Now().Add(wait))
}

// lookAgainAfter has another pass made as soon as an error asks for it; nil asks for none.
func (p *pass) lookAgainAfter(ctx context.Context, err error, what string) {
	if err == nil {
		return
	}
	wait := retryDelay(err)
	p.later = pacing.Earliest(p.later, p.clock.Now().Add(wait))
	log.FromContext(ctx).V(1).Info(what, "delay", wait, "cause", err.Error())
}

// nextLook is when the run is looked at again if nothing happens before.
func (p *pass) nextLook(wake time.Time) time.Time {
	limit := lookAgain
	if lifecycle.Finished(p.run) {
		limit = forgetDelay
	}
	return pacing.Earliest(pacing.Earliest(wake, p.later), p.clock.Now().Add(limit))
}

// retryDelay is what the error asks for, else actRetryDelay.
func retryDelay(err error) time.Duration {
	if wait := saysWhen(err); wait > 0 {
		return wait
	}
	return actRetryDelay
}

// saysWhen is the delay that an error asks for; 0: it asks for none.
func saysWhen(err error) time.Duration {
	var r interface{ RetryDelay() time.Duration }
	if errors.As(err, &r) {
		return max(r.RetryDelay(), 0)
	}
	return 0
}

// dispatch publishes the attempts that begin with the write just made. Nobody else can have published them before: the
// fence and resourceVersion of that write say that it is ours.
func (p *pass) dispatch(ctx context.Context, fresh []lifecycle.Job) error {
	return p.eachJob(fresh, func(j lifecycle.Job) (bool, error) {
		if err := p.jobs.Publish(ctx, p.job(j)); err != nil {
			return true, fmt.Errorf("publish job %s: %w", j.ID, err)
		}
		return true, nil
	})
}

// recoverJobs brings attempts to NATS of which this process does not know whether they got there.
func (p *pass) recoverJobs(ctx context.Context) error {
	if p.lease == nil {
		return nil // the holder of the lock may be about to publish the same; without it waiting is all that is safe
	}
	again, err := p.renderedJobs(ctx, p.mem.unpublished(p.run, p.losses))
	return errors.Join(err, p.eachJob(again, func(j lifecycle.Job) (bool, error) {
		outcome, err := p.Reconciler.jobs.Recover(ctx, p.job(j))
		if err != nil {
			return false, fmt.Errorf("recover job %s: %w", j.ID, err)
		}
		p.metrics.recoveries.WithLabelValues(outcome.String()).Inc()
		return outcome == jobs.Published, nil
	}))
}

// createChildren creates the child runs that status names.
func (p *pass) createChildren(ctx context.Context, fresh []lifecycle.ChildToCreate) error {
	if p.lease == nil {
		return nil
	}
	news, err := p.children.Create(ctx, &p.mem.children, p.run, p.lease, fresh, p.renderedChild)
	if news {
		p.later = pacing.Earliest(p.later, p.clock.Now())
	}
	return err //nolint:wrapcheck // it says what it is about
}

// eachJob does something for several jobs at a time, and remembers those for which it worked as published. do also says whether the job
// goes out for the first time by it, as far as is known: people are told when it has.
func (p *pass) eachJob(list []lifecycle.Job, do func(lifecycle.Job) (first bool, err error)) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	slots := make(chan struct{}, publishParallel)
	for _, j := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			// After a pause of the process the lease knows first that it is over, and somebody else may have recovered the job.
			first, err := false, p.lease.Err()
			if err == nil {
				first, err = do(j)
			}
			mu.Lock()
			defer mu.Unlock()
			if first {
				p.mem.untold[j.ID] = true
			}
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			p.mem.published[j.ID] = p.losses
			p.dispatched(j)
		})
	}
	wg.Wait()
	return failed
}

// dispatched measures the time from the decision to the PubAck, and tells of it.
func (p *pass) dispatched(j lifecycle.Job) {
	if e, worth := report.Dispatched(j); worth && p.mem.untold[j.ID] {
		p.told = append(p.told, e)
	}
	delete(p.mem.untold, j.ID)
	for i := range p.run.Status.Steps {
		if s := &p.run.Status.Steps[i]; s.Name == j.ID.Step && s.DispatchedAt != nil {
			p.metrics.dispatchLatency.Observe(p.clock.Since(s.DispatchedAt.Time).Seconds())
			return
		}
	}
}

func (p *pass) job(j lifecycle.Job) jobs.Job {
	fence, _ := fenceOf(p.run)
	return jobs.Job{
		ID: j.ID, Topic: j.Topic, Input: j.Input, Deadline: j.Deadline, Fence: fence,
		Source: "/namespaces/" + p.run.Namespace + "/workflowruns/" + p.run.Name, Epoch: p.epochs[j.ID],
	}
}

// settleAll settles the results on which the core has a final verdict; it says whether the run is to be read live because one
// is ahead of what is known. One that still is after that goes back to NATS: only a run that lost its past can be behind.
func (p *pass) settleAll(ctx context.Context, d lifecycle.Decision) (ahead bool) {
	var list []results.Settlement
	applied := 0
	for i, v := range d.Verdicts {
		l := p.letters[i]
		if l.Delivery == nil {
			applied += p.countFound(l, v)
			continue
		}
		l.Fact.Rejected = cmp.Or(d.Rejected[i], l.Fact.Rejected)
		switch v {
		case lifecycle.Applied:
			applied++
			p.metrics.applied(p.policy.Name, p.clock.Since(l.Fact.PublishedAt))
			list = append(list, results.Settlement{Pending: l, As: l.Rejection(), Outcome: busresults.OutcomeApplied})
		case lifecycle.Duplicate:
			list = append(list, results.Settlement{Pending: l, As: l.Rejection(), Outcome: busresults.OutcomeDuplicate})
		case lifecycle.Stale:
			list = append(list, results.Settlement{Pending: l, As: l.Rejection(), Outcome: busresults.OutcomeStale})
		case lifecycle.Ahead:
			if l.Refreshed {
				list = append(list, p.giveBack(l, p.failureWait(l.Failures), bus.ClassAhead, errAhead))
				continue
			}
			l.Refreshed, ahead = true, true
		case lifecycle.Waiting:
			list = append(list, p.tired(l)...)
		}
	}
	if applied > 0 {
		p.metrics.resultsPerWrite.Observe(float64(applied))
	}
	p.settleEach(ctx, list)
	return ahead
}

// countFound counts a result that was found in the stream and applied; its delivery is settled as a
// duplicate. What else may have become of it is told by its delivery.
func (p *pass) countFound(l *results.Pending, v lifecycle.Verdict) int {
	if v != lifecycle.Applied {
		return 0
	}
	p.metrics.applied(p.policy.Name, p.clock.Since(l.Fact.PublishedAt))
	p.resultMetrics.CountResult(busresults.OutcomeApplied)
	return 1
}

// settleEach settles results, but for those whose deliveries are used up: these wait until status says so.
func (p *pass) settleEach(ctx context.Context, list []results.Settlement) {
	p.settler.SettleAll(ctx, p.run.UID, p.hold(list))
}

var errAhead = errors.New("the result is of an attempt that the run does not know yet")

// record publishes one event per transition and per job that NATS took, and counts the waits that workers were granted.
func (p *pass) record(d lifecycle.Decision) {
	for _, e := range slices.Concat(d.Events, p.told) {
		p.events.Eventf(p.run, nil, e.Type, e.Reason, "Advance", "%s", e.Message)
	}
	for _, wait := range d.Granted {
		p.resultMetrics.ObserveRetryDelay(bus.ClassWorkerRequested, wait)
	}
}

// withdraw takes jobs back from NATS and tells their workers to stop.
func (p *pass) withdraw(ctx context.Context) error {
	if err := gc.Withdraw(ctx, p.jobs, string(p.run.UID), p.mem.withdrawals); err != nil {
		return err
	}
	p.mem.withdrawals = nil
	return nil
}

// dropUnused drops the objects that the status does not refer to any more, such as outputs of items that were put together. What fails
// here is dropped with the run.
func (p *pass) dropUnused(ctx context.Context) {
	if len(p.unused) == 0 {
		return
	}
	if err := p.outputs.Drop(ctx, p.unused); err != nil {
		log.FromContext(ctx).Info("Outputs that are not needed any more stay until the run is deleted", "cause", err.Error())
	}
	p.unused = nil
}
