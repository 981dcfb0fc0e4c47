// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/outputs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/spans"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// Reconciler advances runs. See the package's documentation.
type Reconciler struct {
	Client   client.Client // reads from the cache, writes directly
	Live     client.Reader // reads from the API server
	Statuses statuses
	NATS     brokerState
	Liveness liveWorkers
	Signals  Sources
	Events   events.EventRecorder
	// StepEvents: runs have step events, if their annotation does not say otherwise.
	StepEvents bool
	Clock      clock.WithTickerAndDelayedExecution
	Rand       func() float64 // uniform in [0,1): spreads what many runs would have at the same time
	Waker      *Waker
	Metrics    *Metrics
	Ballots    *ballot.Box // counts how runs fare in rollouts
	Delays     retryDelays
	Holder     string // name of this replica
	// RequireLists: namespaces without lists of classes and topics permit none.
	RequireLists bool
	// RecoverPatience is how long attempts that others dispatched are left to them:
	// see recoverFrom.
	RecoverPatience time.Duration
	// PolicyChanged tells the quota controller that limits may be others now.
	PolicyChanged func()
	// SemaphoreChanged tells the controller of locks that a semaphore is another now.
	SemaphoreChanged func(name string)

	Driven *driven.Partitions
	Turns  *shares.Turns  // has a place for each pass that may be under way
	Desks  *shares.Desks  // has a place for each pass that may do what takes long
	Writes *shares.Shares // has a place for each status write that may be under way at the same time; nil: any number

	Index *results.Index
	// Known has results delivered that came before their run was seen.
	Known    func(context.Context, types.UID)
	Batches  *results.Batches
	Stream   *results.Stream
	Leases   *leases.Leases
	Dispatch *dispatch.Dispatcher
	Outputs  outputs.Store
	Slots    *slots.Slots
	// Templates gives runs the steps of their Workflows.
	Templates resolver
	Holds     *holds.Holds
	Spans     *spans.Recorder // nil: there are no traces
	Children  *children.Children
	GC        *gc.Collector

	// AloneAfter: see the constant.
	AloneAfter time.Duration
	// Ahead has the runs that are ahead of their status.
	Ahead ahead.Runs

	backoff  passes.Backoff
	memories memories
	policies slots.Policies
	lists    lists
	closing  closing
}

// retryDelays counts the waits that workers were granted; *busresults.Metrics does.
type retryDelays interface {
	ObserveRetryDelay(class string, d time.Duration)
}

// brokerState says what is known of NATS; *bus.Conn does.
type brokerState interface {
	Connected() bool
	// Outage is since when NATS does not answer; zero: it does, as far as is known.
	Outage() time.Time
	// Losses is how often NATS has lost data, as far as is known.
	Losses() uint64
}

// Reconcile makes one pass over a run: observe, decide, persist, act.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.Turns.See(req.Namespace, r.Clock.Now())
	turn, may := r.Turns.Enter(req.NamespacedName)
	if !may {
		r.backoff.InLine(req)
		return reconcile.Result{}, nil // it is woken
	}
	defer r.Turns.Release(turn)
	// What a deleted run of the same name left must not keep this one waiting.
	wait, cleaned := r.cleanUp(ctx, req.NamespacedName)
	result, err := r.passOver(ctx, turn, req.NamespacedName)
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result, errors.Join(cleaned, err)
}

// passOver makes the pass over the run of a name, if there is one that this process drives.
func (r *Reconciler) passOver(ctx context.Context, turn *shares.Pass, key types.NamespacedName) (result reconcile.Result, err error) {
	run, err := r.read(ctx, key)
	if err != nil || run == nil {
		return reconcile.Result{}, err
	}
	while, leave, drives := r.Driven.Enter(ctx, run.UID)
	if !drives {
		return reconcile.Result{}, nil // another replica does, or this one is woken when it does
	}
	defer func() {
		if leave() {
			r.forget(run.UID, key)
			r.Dispatch.Forget(string(run.UID))
			r.Leases.Leave(ctx, func(uid types.UID) bool { return uid == run.UID }) // it may have got in line after those who left in time
		}
	}()
	result, err = r.passUnder(ctx, while, turn, run)
	if err != nil && (errors.Is(context.Cause(while), ownership.ErrNotOwned) || errors.Is(err, driven.ErrHandedOver)) {
		log.FromContext(ctx).V(1).Info("A pass ended as its run is handed over", "cause", err.Error())
		return reconcile.Result{}, nil // the next owner makes another, and so does this one if that is itself
	}
	return result, err
}

// passUnder makes the pass; the run may be written until while ends.
func (r *Reconciler) passUnder(ctx, while context.Context, turn *shares.Pass, run *v1alpha1.WorkflowRun) (result reconcile.Result, err error) {
	if result, stands := standsStill(ctx, r.recall(ctx, run)); stands {
		return result, nil
	}
	p, err := r.observe(ctx, run)
	if err != nil {
		return reconcile.Result{}, err
	}
	p.while = while
	// An operator that stops ends what it is in the middle of, and does not wait for its
	// desk any less.
	early, cancel := r.Driven.Early(context.WithoutCancel(ctx), run.UID)
	defer cancel()
	defer dropUnused(ctx, early, p)
	defer p.desk.StandUp()
	p.desk.From(turn)
	p.desk.Until(early)
	switch cause := p.needsNewer(); {
	case cause != nil:
		return p.leaveToNewer(ctx, cause), nil
	case lifecycle.Finished(p.run):
		result, err = p.finished(ctx)
	case p.unkept != nil:
		return endUnkept(ctx, p)
	default:
		result, err = p.advance(ctx)
		result = inTime(p, result)
	}
	if p.desk.InLine() {
		r.backoff.InLine(reconcile.Request{NamespacedName: p.key})
		return reconcile.Result{}, nil // it is woken, and begins anew
	}
	return result, err
}

// advance decides whether the lock is worth taking, takes it, and works under it.
func (p *pass) advance(ctx context.Context) (reconcile.Result, error) {
	p.lock.TakeKept(ctx, p.run)
	defer p.lock.PutBack(ctx)
	if result, done, err := beforeDeciding(ctx, p); done {
		return result, err
	}
	p.lookUpJobs(ctx)
	plan := decideFirst(ctx, p)
	p.mem.outputs = p.outputs.Facts()
	if p.desk.InLine() {
		return reconcile.Result{}, shares.ErrInLine
	}
	if result, done, err := p.withoutNeed(ctx, plan); done {
		return result, err
	}
	if err := deskForObject(ctx, p); err != nil && !p.ahead.Closes {
		return reconcile.Result{}, err
	}
	p.desk.Stay()
	if err := p.lock.Take(ctx, p.run, pathOf(p.batch)); err != nil {
		return p.withoutLock(ctx, err)
	}
	defer func() {
		p.lock.Drop(ctx) // only if a bug made the pass panic: no other must wait for its lock
	}()
	result, err := underLockUntilItFits(ctx, p)
	p.lock.Return(ctx, p.run)
	if limit := p.lock.LookAgain(p.run, refreshDelay, actRetryDelay); limit > 0 && (result.RequeueAfter == 0 || result.RequeueAfter > limit) {
		result.RequeueAfter = max(limit, p.notYet.Sub(p.r.Clock.Now()))
	}
	return result, err
}

// beforeDeciding ends a pass that is not to decide yet.
func beforeDeciding(ctx context.Context, p *pass) (result reconcile.Result, done bool, err error) {
	if until := notBefore(p); !until.IsZero() {
		return p.again(until), true, nil
	}
	if result, done, err := standsBy(ctx, p); done {
		return result, done, err
	}
	if p.notYet = restsWithMany(p); !p.notYet.IsZero() {
		return p.again(p.notYet), true, nil
	}
	switch err := lockFirst(ctx, p); {
	case p.desk.InLine():
		return reconcile.Result{}, true, err
	case err != nil:
		result, err = p.withoutLock(ctx, err)
		return result, true, err
	}
	if err := deskFirst(ctx, p); err != nil {
		return reconcile.Result{}, true, err
	}
	if p.notYet = p.tooEarly(ctx); !p.notYet.IsZero() {
		return p.again(p.notYet), true, nil
	}
	return reconcile.Result{}, false, nil
}

// underLockUntilItFits works under the lock, and again, at once, if the run is to end in a form
// that needs less room: a next owner would not know, and begin with the largest form.
func underLockUntilItFits(ctx context.Context, p *pass) (result reconcile.Result, err error) {
	result, err = p.underLock(ctx)
	for p.shrunk {
		p.shrunk = false
		p.desk.Rest(ctx)
		result, err = p.underLock(ctx)
	}
	return result, err
}

// withoutNeed ends a pass for which the lock would be of no use, or is not of use yet.
func (p *pass) withoutNeed(ctx context.Context, plan lifecycle.Decision) (result reconcile.Result, done bool, err error) {
	if p.ahead.Lags() {
		result, done = restAhead(p, plan)
		return result, done, nil
	}
	at := p.slot.ExpectedUntil(p.r.Clock.Now())
	switch {
	case plan.Changed && !at.IsZero():
		return p.again(pacing.Earliest(plan.Wake, at)), true, nil
	case plan.Changed || p.lock.Wanted(p.run):
	case !p.effectsPending():
		// Nothing to write, so no lock: what the core says of duplicates and stale results can
		// never change back.
		p.lock.WaitedEnough(p.run)
		p.later = pacing.Earliest(p.later, p.recoverFrom())
		result, err = p.act(ctx, plan)
		return result, true, err
	case !p.executable():
		return p.again(pacing.Earliest(plan.Wake, p.r.Clock.Now().Add(actRetryDelay))), true, nil
	}
	return reconcile.Result{}, false, nil
}

// underLock decides, persists and acts under a lease. Work under the lease ends when it is lost:
// its context is cancelled.
func (p *pass) underLock(ctx context.Context) (reconcile.Result, error) {
	lease := p.lock.Held
	// An operator that stops ends what it is in the middle of; otherwise its successor would have
	// to find out what happened.
	held, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })() //nolint:contextcheck // the cause is that of the lease
	defer context.AfterFunc(p.while, func() {                                                     //nolint:contextcheck // likewise
		if cause := context.Cause(p.while); errors.Is(cause, ownership.ErrNotOwned) {
			cancel(cause)
		}
	})()

	p.ahead.NoteFirst(p.lock.First())
	p.batch.TakeAll()
	d := p.decideWithin(held, p.lock.Lock())
	p.batch.Carry(d.Verdicts)
	lags := mayRunAhead(p, &d)
	writes := !lags && mustWrite(p, &d)
	if writes {
		if lease.Err() != nil {
			return reconcile.Result{RequeueAfter: refreshDelay}, nil // after a pause of the process the lease knows first
		}
		fenced, err := fence(held, p, &d, lease.Fence())
		if err != nil {
			return p.unfenced(ctx, err)
		}
		writes = !fenced || !findsAll(held, p, &d)
	}
	// The write has its time to itself: what it took to decide, and to fence, must not
	// make it fail.
	bounded, stop := context.WithTimeout(held, passTimeout)
	defer stop()
	if lags {
		return runAhead(bounded, p, d)
	}
	if writes {
		if err := p.persist(bounded, d); err != nil {
			return p.refused(ctx, err)
		}
	}
	p.lock.LossTold(p.run)
	return p.act(bounded, d)
}

// withoutLock does what needs no lock (cancel, deadlines, news of the lock) and tries again
// for the rest.
func (p *pass) withoutLock(ctx context.Context, cause error) (reconcile.Result, error) {
	p.desk.Stay() // an end is not to wait for another pass, which might have the same fate
	lock, class := p.lock.Without(p.run, cause)
	d, result, done, err := unlocked(ctx, p, lock)
	if done {
		return result, err
	}
	p.lock.CountLeaseless()
	now := p.r.Clock.Now()
	at := pacing.Earliest(p.retryAt(ctx, now, class, cause), d.Wake)
	return reconcile.Result{RequeueAfter: max(at.Sub(now), time.Millisecond)}, nil
}

// retryAt gives back what has waited too long for the lock, and says when it is tried again.
func (p *pass) retryAt(ctx context.Context, now time.Time, class string, cause error) time.Time {
	if class != bus.ClassLockBusy {
		p.handBack(ctx, cause)
		p.r.Metrics.storeFailures.Inc()
		return now.Add(p.lock.Wait(class))
	}
	budget := p.policy.RunLock.Wait.Budget
	p.batch.HandBack(ctx, budget, class, cause, func() time.Duration {
		wait := p.lock.Wait(class)
		p.lock.CountWait("result", wait)
		return wait
	})
	return pacing.Earliest(p.lock.RetryAt(ctx, p.run, now, p.lock.Wait(class)), p.batch.PatienceEnds(budget))
}
