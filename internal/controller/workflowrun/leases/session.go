// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// waiter names the passes over a run to the lock manager: whatever a pass wants the lock for, it is
// the same place in line.
const waiter = "pass"

// TakeKept takes the lease that the run kept, if it may still be worked under. A lease that is
// healthy, but not as the policy wants it now, is given back, so that the next take is; one that
// cannot be renewed could most likely not be taken anew, and is kept under the policy that it was
// taken under. Only what becomes of it is as the policy says now: whoever sees an outage may want
// the runs of a class to stop, or to go on.
func (s *Session) TakeKept(ctx context.Context, run *v1alpha1.WorkflowRun) {
	lease := s.all.Cache.take(s.uid)
	if lease == nil {
		return
	}
	lease.OnFailure(s.policy.RunLock.Renewal.Continue)
	switch status := lease.Status(); {
	case lease.Err() != nil:
		s.noteLoss(lease)
		lease.Drop(ctx)
	case !current(lease, run):
		lease.Drop(ctx)
	case !s.Ahead && lease.Policy() != s.policy.RunLock && status.Failures == 0 && !status.Unlocked:
		lease.Release(ctx)
	default:
		s.kept = lease
	}
}

// PutBack returns the lease that the run keeps and that the pass did not work under. One that the
// run keeps no longer is given back.
func (s *Session) PutBack(ctx context.Context) {
	switch {
	case s.kept == nil:
	case s.Ahead, s.kept.Policy().ForRun, s.kept.Status().Failures > 0:
		s.all.Cache.keep(ctx, s.uid, s.kept)
	default:
		s.kept.Release(ctx)
	}
}

// Wanted says whether the lock is wanted though there may be nothing to write: because the run
// keeps it from its admission on, or because the loss of a lease has to be told, which is a matter
// of how the lock is to be had now.
func (s *Session) Wanted(run *v1alpha1.WorkflowRun) bool {
	return s.Lost != "" || (s.kept == nil && s.policy.RunLock.ForRun && lifecycle.Admitted(run))
}

// Take takes the run's lock or fails at once. A lease that the run kept needs no Redis, so no
// breaker stops it. Path says what the lock is wanted for, in metrics.
func (s *Session) Take(ctx context.Context, run *v1alpha1.WorkflowRun, path string) error {
	if s.kept != nil {
		s.Held, s.kept = s.kept, nil
		return nil
	}
	if err := s.all.Breaker.Open(); err != nil {
		return err
	}
	fence, leaseID := FenceOf(run)
	if s.floor > fence {
		fence, leaseID = s.floor, ""
	}
	if s.called == nil {
		s.called = new(atomic.Bool)
	}
	s.called.Store(false)
	wake, key, called := s.all.Wake, s.key, s.called // the lease outlives the pass, and must not keep it in memory
	lease, err := s.all.Locks.Acquire(ctx, lockmgr.Request{
		RunUID: string(s.uid), Floor: fence, FloorLeaseID: leaseID,
		Policy: s.policy.RunLock, PolicyName: s.policy.Name, Path: path,
		Waiter: waiter, Wake: func() { called.Store(true); wake(key) }, Since: s.busy.since, Retries: s.busyRetries, Gone: s.all.Gone,
	})
	if err == nil {
		s.Held = lease
		s.Votes.had(s.busy.since, s.all.Clock.Now())
		s.WaitedEnough(run)
	}
	return s.learn(ctx, lease, err)
}

// TakeEarly is Take for a pass that has not found out yet what it wants the lock for: the lease
// counts as kept until it is taken. PutBack gives it back if it is not.
func (s *Session) TakeEarly(ctx context.Context, run *v1alpha1.WorkflowRun, path string) error {
	if err := s.Take(ctx, run, path); err != nil {
		return err
	}
	s.kept, s.Held = s.Held, nil
	return nil
}

// learn tells the breaker what a take says about the store, and returns its error, without the run
// that found out.
func (s *Session) learn(ctx context.Context, lease *lockmgr.Lease, err error) error {
	down, failed := errors.AsType[*lockmgr.UnavailableError](err)
	busy, isBusy := errors.AsType[*lockmgr.BusyError](err)
	switch {
	case failed:
		err = fmt.Errorf("lock store unavailable: %w", down.Unwrap())
		// An answer about one run is no reason to keep others waiting, and the end of this process
		// says nothing about the store.
		if !down.OneRun && ctx.Err() == nil && s.all.Breaker.Trip(err) {
			log.FromContext(ctx).Info("Redis cannot be used: no new work until it can", "cause", err.Error())
		}
	case (lease != nil && lease.Fresh()) || (isBusy && busy.Asked):
		if s.all.Breaker.reset() {
			log.FromContext(ctx).Info("Redis can be used again")
		}
	}
	return err
}

// Return ends the work under a lease: it is kept for the run, or given back.
func (s *Session) Return(ctx context.Context, run *v1alpha1.WorkflowRun) {
	lease := s.Held
	s.Held = nil
	switch {
	case lease.Err() != nil:
		s.noteLoss(lease)
		lease.Drop(ctx)
	case lifecycle.Finished(run):
		lease.Drop(ctx) // no pass will need it again
	case s.Ahead, lease.Policy().ForRun && lifecycle.Admitted(run):
		s.all.Cache.keep(ctx, s.uid, lease)
	default:
		lease.Release(ctx)
	}
}

// Drop ends the lease that is worked under, if there is one.
func (s *Session) Drop(ctx context.Context) {
	if s.Held != nil {
		s.Held.Drop(ctx)
	}
}

// DropIfOutdated ends the lease that is worked under if another wrote the run after it.
func (s *Session) DropIfOutdated(ctx context.Context, run *v1alpha1.WorkflowRun) {
	if s.Held != nil && !current(s.Held, run) {
		s.Held.Drop(ctx)
	}
}

// Wrote remembers the lease under which a write was accepted.
func (s *Session) Wrote() {
	if s.Held != nil {
		s.Writer = s.Held.ID()
	}
}

// LossTold forgets that a lease was lost once a decision that knew of it is in status: a loss
// is told once.
func (s *Session) LossTold(run *v1alpha1.WorkflowRun) {
	if lifecycle.Abandoned(run) {
		s.Lost = ""
	}
}

// noteLoss keeps the reason why a lease was lost, for the run's conditions.
func (s *Session) noteLoss(lease *lockmgr.Lease) {
	if lost, ok := errors.AsType[*lockmgr.LostError](lease.Err()); ok {
		s.Lost = string(lost.Reason)
		if s.leaselessSince.IsZero() {
			s.leaselessSince = s.all.Clock.Now()
		}
	}
}
