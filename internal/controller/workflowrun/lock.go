package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

const (
	// breakerPause is how long after a failure of the lock store no other pass asks it, and the least time after which a run
	// that needs the lock comes again.
	breakerPause = time.Second
	// longestPause is the longest such time: many runs that all wait for the store must not cost much, nor wait long when it is
	// back.
	longestPause = 5 * time.Second
	// pauseShare is the part of an outage that a run may wait beyond its end.
	pauseShare = 8
)

// storeJitterPercent spreads all waits but those for busy locks, which policies tune.
const storeJitterPercent = 20

// breaker keeps many passes from each waiting for the time-out of a lock store that is down, so that cancels and deadlines,
// which do not need it, are not held up.
type breaker struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	since time.Time // when the first of the failures in a row was seen
	until time.Time
	cause error
}

// open returns the failure that the next pass would most likely see, or nil. After the pause one pass finds out, while the
// others keep out for one more.
func (b *breaker) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if now.Before(b.until) {
		return b.cause
	}
	if b.cause != nil {
		b.until = now.Add(breakerPause)
	}
	return nil
}

// trip notes a failure; it says whether it is the first one.
func (b *breaker) trip(cause error) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first = b.cause == nil
	if first {
		b.since = b.clock.Now()
	}
	b.until, b.cause = b.clock.Now().Add(breakerPause), cause
	return first
}

// pause is the base of the wait of a run that needs the store: the longer it is down, the longer.
func (b *breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		return breakerPause
	}
	return min(max(b.clock.Now().Sub(b.since)/pauseShare, breakerPause), longestPause)
}

// reset notes that the store answered; it says whether it did not before.
func (b *breaker) reset() (recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	recovered = b.cause != nil
	b.until, b.cause = time.Time{}, nil
	return recovered
}

// waiter names the passes over a run to the lock manager: whatever a pass wants the lock for, it is the same place in line.
const waiter = "pass"

// acquire takes the run's lock or fails at once. A lease that the run kept needs no Redis, so no breaker stops it.
func (p *pass) acquire(ctx context.Context) (*lockmgr.Lease, error) {
	if lease := p.kept; lease != nil {
		p.kept = nil
		return lease, nil
	}
	if err := p.breaker.open(); err != nil {
		return nil, err
	}
	fence, leaseID := fenceOf(p.run)
	if p.mem.floor > fence {
		fence, leaseID = p.mem.floor, ""
	}
	r, key := p.Reconciler, p.key // the lease outlives the pass, and must not keep it in memory
	lease, err := p.locks.Acquire(ctx, lockmgr.Request{
		RunUID: string(p.run.UID), Floor: fence, FloorLeaseID: leaseID,
		Policy: p.policy.RunLock, PolicyName: p.policy.Name, Path: p.path(),
		Waiter: waiter, Wake: func() { r.wake(key) }, Since: p.mem.busy.since, Retries: p.mem.busyRetries,
	})
	if err == nil {
		p.waitedEnough()
	}
	return lease, p.learn(ctx, lease, err)
}

// learn tells the breaker what a take says about the store, and returns its error, without the run that found out.
func (p *pass) learn(ctx context.Context, lease *lockmgr.Lease, err error) error {
	down, failed := errors.AsType[*lockmgr.UnavailableError](err)
	busy, isBusy := errors.AsType[*lockmgr.BusyError](err)
	switch {
	case failed:
		err = fmt.Errorf("lock store unavailable: %w", down.Unwrap())
		// An answer about one run is no reason to keep others waiting, and the end of this process says nothing about the store.
		if !down.OneRun && ctx.Err() == nil && p.breaker.trip(err) {
			log.FromContext(ctx).Info("Redis cannot be used: no new work until it can", "cause", err.Error())
		}
	case (lease != nil && lease.Fresh()) || (isBusy && busy.Asked):
		if p.breaker.reset() {
			log.FromContext(ctx).Info("Redis can be used again")
		}
	}
	return err
}

// path says what the lock is wanted for.
func (p *pass) path() string {
	if len(p.letters) > 0 {
		return "result"
	}
	return "reconcile"
}

// withoutLock does what needs no lock (cancel, deadlines, news of the lock) and comes again for the rest.
func (p *pass) withoutLock(ctx context.Context, cause error) (reconcile.Result, error) {
	lock, class := p.noLease(cause)
	d := p.decide(ctx, lock)
	if d.Changed {
		p.carried = carried(p.letters, d.Verdicts)
		p.fenceForced(ctx, d)
		if err := p.persist(ctx, d); err != nil {
			return p.refused(ctx, nil, err)
		}
		if _, err := p.act(ctx, d); err != nil {
			return reconcile.Result{}, err
		}
	}
	p.lossTold()
	p.countLeaseless()
	p.handBack(ctx, class, cause)
	now, wait := p.clock.Now(), p.retryWait(class)
	at := pacing.Earliest(now.Add(wait), d.Wake)
	if class == bus.ClassLockBusy {
		p.locked.BusyRetry("reconcile", class, p.policy.Name, p.policy.RunLock.BusyRetry.Fixed, wait)
		log.FromContext(ctx).V(1).Info("Run lock busy, tried again later", "class", class, "delay", wait, "policy", p.policy.Name)
		at = pacing.Earliest(at, p.budgetEnd())
		p.mem.busyRetries++
		if due := p.mem.busy.overdueAt(p.policy.RunLock); due.After(now) {
			at = pacing.Earliest(at, due)
		}
		p.mem.busy.looked(p.run)
	} else {
		p.metrics.storeFailures.Inc()
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(now), time.Millisecond)}, nil
}

// noLease describes to the core a lock that could not be taken, and says of which class the retry is.
func (p *pass) noLease(cause error) (lock lifecycle.Lock, class string) {
	lock = lifecycle.Lock{State: lifecycle.LockUnavailable, LeaseID: p.newID(), Holder: p.holder, Message: cause.Error(), Lost: p.mem.lostLease}
	busy, isBusy := errors.AsType[*lockmgr.BusyError](cause)
	if !isBusy {
		return lock, bus.ClassStoreUnavailable
	}
	now, b := p.clock.Now(), &p.mem.busy
	b.look(p.run, busy.Owner, now)
	lock.State = lifecycle.LockBusy
	if !busy.Local {
		lock.Message = b.text(p.run, busy.Owner, p.holder, p.policy.RunLock.BusyRetry)
		lock.Overdue = !b.overdueAt(p.policy.RunLock).After(now)
	}
	return lock, bus.ClassLockBusy
}

// retryWait draws a wait, anew for each use so that contenders spread. Only waits for a busy lock are the policy's.
func (p *pass) retryWait(class string) time.Duration {
	if class == bus.ClassLockBusy {
		return p.policy.RunLock.BusyRetry.Wait(p.rand())
	}
	return policy.BusyRetry{Delay: p.breaker.pause(), JitterPercent: storeJitterPercent}.Wait(p.spread())
}

// budgetEnd is when the first of the results that wait has waited for a busy lock as long as the policy lets it; zero: none waits.
func (p *pass) budgetEnd() time.Time {
	var first time.Time
	for _, l := range p.inbox.Waiting(p.run.UID) {
		first = pacing.Earliest(first, l.Since.Add(p.policy.RunLock.Wait.Budget))
	}
	return first
}

// handBack returns results that have waited for too long to NATS, each with a delay of its own: another replica may be able
// to apply them.
func (p *pass) handBack(ctx context.Context, class string, cause error) {
	patience := resultPatience
	if class == bus.ClassLockBusy {
		patience = p.policy.RunLock.Wait.Budget
	}
	var list []results.Settlement
	for _, l := range p.inbox.Waiting(p.run.UID) {
		if p.clock.Since(l.Since) < patience {
			continue
		}
		wait := p.retryWait(class)
		list = append(list, p.giveBack(l, wait, class, cause))
		if class == bus.ClassLockBusy {
			p.locked.BusyRetry("result", class, p.policy.Name, p.policy.RunLock.BusyRetry.Fixed, wait)
		}
	}
	p.settleEach(ctx, list)
}
