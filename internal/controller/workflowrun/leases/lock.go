// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"errors"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

// maxFailuresShown bounds the renewals failed in a row that status counts.
const maxFailuresShown = 1_000_000

// Tentative is the lock that the pass would work under: the lease that the run keeps, or one that
// it could take. It is enough for the core to say whether there is anything to do.
func (s *Session) Tentative(run *v1alpha1.WorkflowRun) lifecycle.Lock {
	if s.kept != nil {
		return s.describe(s.kept)
	}
	fence, _ := FenceOf(run)
	return lifecycle.Lock{
		State: lifecycle.LockHeld, Fence: fence + 1, LeaseID: "prospect", Holder: s.all.Holder, ForRun: s.policy.RunLock.ForRun,
	}
}

// Lock is the lock that the pass works under.
func (s *Session) Lock() lifecycle.Lock {
	lock := s.describe(s.Held)
	lock.Lost = s.Lost
	return lock
}

// describe describes a lease to the core.
func (s *Session) describe(lease *lockmgr.Lease) lifecycle.Lock {
	st := lease.Status()
	return lifecycle.Lock{
		State: lifecycle.LockHeld, LeaseID: lease.ID(), Holder: s.all.Holder, Fence: lease.Fence(), AcquiredAt: lease.AcquiredAt(),
		ForRun: lease.Policy().ForRun, Renewed: st.Renewed, RenewalFailures: int32(min(st.Failures, maxFailuresShown)), RenewalCause: st.Cause,
		UnlockedSince: st.UnlockedSince,
	}
}

// Without describes to the core a lock that could not be taken, and says of which class
// the retry is.
func (s *Session) Without(run *v1alpha1.WorkflowRun, cause error) (lock lifecycle.Lock, class string) {
	lock = lifecycle.Lock{State: lifecycle.LockUnavailable, LeaseID: s.all.NewID(), Holder: s.all.Holder, Message: cause.Error(), Lost: s.Lost}
	busy, isBusy := errors.AsType[*lockmgr.BusyError](cause)
	if !isBusy {
		return lock, bus.ClassStoreUnavailable
	}
	now := s.all.Clock.Now()
	s.busy.look(run, busy.Owner, now)
	lock.State = lifecycle.LockBusy
	if !busy.Local {
		lock.Message = s.busy.text(run, busy.Owner, s.all.Holder, s.policy.RunLock.BusyRetry)
		lock.Overdue = !s.busy.overdueAt(s.policy.Patience()).After(now)
	}
	return lock, bus.ClassLockBusy
}

// MustClaim says whether attempts have to be claimed by a write before they are published again
// from a status that another lease wrote. Such a status may be about to change: its writer may
// still end an attempt and take its job back, and what is then published again would run twice. A
// write under this lease's fence first makes sure that no other can write any more. The same goes
// for a lease that was without its lock in between (a higher fence) or is now: another may have
// written meanwhile, and the write finds out.
func (s *Session) MustClaim(run *v1alpha1.WorkflowRun) bool {
	fence, writer := FenceOf(run)
	return writer != s.Held.ID() || fence != s.Held.Fence() || s.Held.Status().Unlocked
}

// Kept says whether the run has a lease, in the cache or in hand.
func (s *Session) Kept() bool { return s.kept != nil || s.Held != nil }

// First says whether nobody ever had the run's lock before, as far as Redis knows.
func (s *Session) First() bool { return s.Held.Fence() == 1 }

// LookAgain is when the next pass is due at the latest because what the run says of its lock is out
// of date; 0: it is not.
func (s *Session) LookAgain(run *v1alpha1.WorkflowRun, soon, later time.Duration) time.Duration {
	switch {
	case lifecycle.Finished(run):
	case s.Lost != "" || lifecycle.Abandoned(run):
		return soon // the loss, or that it is over, is told at once
	case lifecycle.RenewalFailing(run) && s.all.Cache.Of(s.uid) == nil:
		return later // of a lease that was given back
	}
	return 0
}
