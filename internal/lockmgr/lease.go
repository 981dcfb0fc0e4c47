// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/policy"
)

// Lease is the right to work on a run, from Acquire to Release or Drop. Safe for concurrent use.
type Lease struct {
	manager *Manager
	run     *run
	hold    *hold
	since   time.Time     // when this use began
	linger  time.Duration // of the policy
	fresh   bool
	// ctx is the one that the work runs under.
	ctx    context.Context //nolint:containedctx // handed to the work; its end is how a loss is told
	cancel context.CancelCauseFunc

	// Guarded by Manager.mu.
	err  error // why nobody may work under it any more
	done bool  // Release or Drop was called
}

// Context is what the work must run under. It has the values of Acquire's context, but not its end:
// it ends when the lease is lost, with a cause that is a *LostError, and when it is released, with
// ErrReleased, or at Manager.Close, with ErrClosed.
func (l *Lease) Context() context.Context { return l.ctx }

// ID is the random id of the lease, for status.lock.leaseID.
func (l *Lease) ID() string { return l.hold.token }

// Fence is the fencing token, above that of every earlier lease of the run. It rises when a lock
// that was gone is taken again for the same lease (Continue); so ask for it right before each use.
func (l *Lease) Fence() int64 {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	return l.hold.fence
}

// AcquiredAt is when the lock was taken, as the wall clock says.
func (l *Lease) AcquiredAt() time.Time { return l.hold.takenAt.Round(0) }

// Status is how a lease fares.
type Status struct {
	// Renewed says that the lock was renewed at least once.
	Renewed bool
	// Failures is the number of renewals that failed in a row, up to now.
	Failures int
	// Cause is why the last of them failed; empty without failures.
	Cause string
	// Unlocked says that the validity is over and the work goes on without the lock, as the policy
	// (Continue) wants it.
	Unlocked bool
	// UnlockedSince is when the validity ended, as the wall clock says; zero unless Unlocked.
	UnlockedSince time.Time
}

// Status is how the lease fares now.
func (l *Lease) Status() Status {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	h := l.hold
	l.manager.checkDeadline(l.run, h) // after a pause of the process nobody else may have looked yet
	s := Status{Renewed: h.renewed, Failures: h.failures, Cause: h.failure, Unlocked: h.unlocked}
	if h.unlocked {
		s.UnlockedSince = h.validUntil.Round(0)
	}
	return s
}

// Fresh says that Redis was asked for this lease just now; else the process had the lock already.
func (l *Lease) Fresh() bool { return l.fresh }

// Policy is the one under which the lock was taken, with what OnFailure said since.
func (l *Lease) Policy() policy.RunLock {
	l.manager.mu.Lock()
	defer l.manager.mu.Unlock()
	return l.hold.request.Policy
}

// Err is nil while the lease may be worked under, else the cause of its context. It looks at the
// clock: after a pause of the whole process it is the first to know. Call it right before a write.
func (l *Lease) Err() error {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.err == nil {
		m.checkDeadline(l.run, l.hold)
	}
	return l.err
}

// Release ends the use of the lease; the work under it must have returned. The lock lingers, as the
// policy says, and is then freed in the background. A lost lock is left alone. Only the first call
// of Release and Drop counts.
func (l *Lease) Release(ctx context.Context) { l.manager.finish(ctx, l, true) }

// Drop is Release without lingering: for a lease whose write was refused, and would
// be refused again.
func (l *Lease) Drop(ctx context.Context) { l.manager.finish(ctx, l, false) }

// OnFailure says what becomes of the lease when it cannot be renewed, from now on: it goes on, or
// ends. A lease that could not be renewed for too long already ends by that at once.
func (l *Lease) OnFailure(goOn bool) {
	m := l.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	h := l.hold
	if l.done || h.lost != nil || h.request.Policy.Renewal.Continue == goOn {
		return
	}
	h.request.Policy.Renewal.Continue = goOn
	switch {
	case goOn:
	case h.retaking: // whose the lock is by now is not known
		m.lose(l.run, h, OwnershipLost)
	case h.unlocked:
		m.lose(l.run, h, LeaseDeadlineReached)
	case h.failures >= h.request.Policy.Renewal.MaxConsecutiveFailures:
		m.lose(l.run, h, RenewalFailuresExceeded)
	}
}
