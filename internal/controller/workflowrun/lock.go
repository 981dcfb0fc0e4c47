package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// breakerPause is how long after a failure of the lock store no other pass asks it.
const breakerPause = time.Second

// breaker keeps many passes from each waiting for the time-out of a lock store that is down, so that cancels and deadlines,
// which do not need it, are not held up.
type breaker struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	until time.Time
	cause error
}

// open returns the failure that the next pass would most likely see, or nil.
func (b *breaker) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clock.Now().Before(b.until) {
		return b.cause
	}
	return nil
}

func (b *breaker) trip(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.cause = b.clock.Now().Add(breakerPause), cause
}

// again is an error that says when to come again, and why: the retry contract of internal/bus.
type again struct {
	after time.Duration
	class string
	cause error
}

func (e *again) Error() string             { return fmt.Sprintf("again in %s: %s", e.after, e.cause) }
func (e *again) Unwrap() error             { return e.cause }
func (e *again) RetryDelay() time.Duration { return e.after }
func (e *again) RetryClass() string        { return e.class }

// acquire takes the run's lock or fails at once.
func (p *pass) acquire(ctx context.Context) (*lockmgr.Lease, error) {
	if err := p.breaker.open(); err != nil {
		return nil, err
	}
	fence, leaseID := fenceOf(p.run)
	lease, err := p.locks.Acquire(ctx, lockmgr.Request{
		RunUID: string(p.run.UID), Floor: fence, FloorLeaseID: leaseID,
		Policy: p.policy.RunLock, PolicyName: p.policy.Name, Path: "reconcile",
	})
	if down, ok := errors.AsType[*lockmgr.UnavailableError](err); ok {
		p.breaker.trip(fmt.Errorf("lock store unavailable: %w", down.Unwrap())) // without the run that found out
	}
	return lease, err
}

// withoutLock does what needs no lock (cancel, deadlines) and comes again for the rest.
func (p *pass) withoutLock(ctx context.Context, cause error) (reconcile.Result, error) {
	lock := lifecycle.Lock{State: lifecycle.LockBusy, LeaseID: p.newID(), Holder: p.holder, Message: cause.Error()}
	class := "lock_busy"
	if _, busy := errors.AsType[*lockmgr.BusyError](cause); !busy {
		lock.State, class = lifecycle.LockUnavailable, "store_unavailable"
	}
	d := lifecycle.Decide(p.input(lock))
	if d.Changed {
		if err := p.persist(ctx, d); err != nil {
			return p.refused(ctx, nil, err)
		}
		if _, err := p.act(ctx, d); err != nil {
			return reconcile.Result{}, err
		}
	}
	now := p.clock.Now()
	if p.mem.blockedSince.IsZero() {
		p.mem.blockedSince = now
	}
	if now.Sub(p.mem.blockedSince) >= resultPatience {
		p.handBack(ctx, class, cause)
	}
	return p.again(earliest(now.Add(p.retryWait(class)), d.Wake)), nil
}

// retryWait draws the wait before the next pass, and counts it.
func (p *pass) retryWait(class string) time.Duration {
	wait := p.busyWait()
	if class == "lock_busy" {
		p.locked.BusyRetry("reconcile", class, p.policy.Name, p.policy.RunLock.BusyRetry.Fixed, wait)
	} else {
		p.metrics.storeFailures.Inc()
	}
	return wait
}

// busyWait is the policy's wait before a busy lock is tried again, drawn anew for each use so that contenders spread.
func (p *pass) busyWait() time.Duration { return p.policy.RunLock.BusyRetry.Wait(p.rand()) }

// handBack returns all results that wait to NATS, each with a delay of its own: another replica may be able to apply them.
func (p *pass) handBack(ctx context.Context, class string, cause error) {
	for _, l := range p.inbox.takeAll(p.run.UID) {
		p.settle(ctx, l, &again{after: p.busyWait(), class: class, cause: cause}, "")
	}
}
