// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// AloneAfter is how long after this process began to drive a run's partition the run must have been
// created, for this process to know that no other has worked on it. It is more than clocks differ.
const AloneAfter = 10 * time.Second

// observeAhead takes what was decided and not written, or drops it if another wrote the run.
func observeAhead(p *pass) {
	p.ahead, p.run = p.r.Ahead.Session(&p.mem.ahead, p.r.Clock, p.key, p.run, wroteLast(p))
	if lifecycle.Finished(p.ahead.Stored) {
		p.mem.withdrawals = append(p.mem.withdrawals, p.mem.ahead.TakeLeft()...)
	}
}

// beginAhead says under which policy the run may be ahead, and whether it was created here.
func beginAhead(p *pass, tenant string) {
	since := p.r.Driven.Since(p.run.UID)
	born := !since.IsZero() && !p.run.CreationTimestamp.Time.Before(since.Add(p.r.AloneAfter))
	p.ahead.Under(p.policy.Checkpoint, born, p.policy.Admission.Limit(tenant) == policy.NoLimit)
	p.ahead.Crowded(crowded(p))
	p.lock.Ahead = keepsLease(p)
	if p.ahead.MayHaveJournal() {
		p.batch.Journal()
	}
}

// crowded says whether another write of the run's namespace would wait for a place.
func crowded(p *pass) bool { return p.r.Writes != nil && p.r.Writes.Crowded(p.key.Namespace) }

// keepsLease says whether the lease is kept between passes for what the run is ahead by, or
// soon may be.
func keepsLease(p *pass) bool {
	return p.ahead.Lags() || (lifecycle.Admitted(p.run) && !p.ahead.LingersUntil().IsZero())
}

// wroteLast says whether this process wrote the run last, under a lease.
func wroteLast(p *pass) bool {
	stored := p.run
	if p.ahead != nil {
		stored = p.ahead.Stored
	}
	_, writer := leases.FenceOf(stored)
	return writer == p.mem.lock.Writer
}

// mayRunAhead says whether a decision under the lease is kept instead of written.
func mayRunAhead(p *pass, d *lifecycle.Decision) bool {
	return d.MayLag && !p.batch.HasFound() && p.lock.Held.Err() == nil &&
		p.ahead.May(p.batch.Len(), !p.lock.MustClaim(p.ahead.Stored), len(p.jobs.Lacks(p.run)) > 0)
}

// notBefore is when the pass may go on: at once in another pass, if what was decided was dropped
// with its lease; or a little later, if its lock was busy a moment ago and results came, or its
// writes met conflicts. Zero: now.
func notBefore(p *pass) time.Time {
	if p.ahead.Lags() && !p.lock.Kept() {
		dropAhead(p)
		return p.r.Clock.Now()
	}
	if at := p.lock.NotBefore(p.run); p.batch.Waits() && at.After(p.r.Clock.Now()) {
		return at
	}
	if at := p.mem.conflicts.until; at.After(p.r.Clock.Now()) && !p.ahead.Closes {
		return at
	}
	return time.Time{}
}

// dropAhead forgets what was decided and not written. Its results are applied anew.
func dropAhead(p *pass) {
	p.ahead.Drop()
	p.lock.Ahead = false
	p.run = p.ahead.Stored
}

// mustWrite says whether a decision that is not kept has to be written before it is carried out.
func mustWrite(p *pass, d *lifecycle.Decision) bool {
	return d.Changed || p.ahead.Lags() || p.mustClaim()
}

// findsAll says whether a run that is to be written for the sake of a claim only need not be: NATS
// has all of its attempts, or their answers, so none is to be published. After a change of owner
// that is each run that waits for a worker.
func findsAll(held context.Context, p *pass, d *lifecycle.Decision) bool {
	if d.Changed || p.ahead.Lags() {
		return false
	}
	bounded, stop := context.WithTimeout(held, lookUpTimeout)
	defer stop()
	all, err := p.jobs.Find(bounded, p.run)
	if err != nil {
		log.FromContext(held).V(1).Info("A run is claimed: its jobs could not be looked for", "cause", err.Error())
	}
	return all
}

// fence ends what others may still be about to publish, before a write, in a time of its own: what
// is left of a run with many attempts is for the next pass. An error says that the run is not to be
// written yet; not done, that it is written though NATS could not be told.
func fence(held context.Context, p *pass, d *lifecycle.Decision, fence int64) (done bool, err error) {
	bounded, stop := context.WithTimeout(held, fenceTimeout)
	defer stop()
	err = p.jobs.Fence(bounded, p.run, p.mem.lock.Writer, p.ahead.Left(p.run, d, p.jobs.Lacks(p.run)), fence)
	if _, fenced := errors.AsType[*jobs.FencedError](err); err == nil || fenced || !p.jobs.GoesOn(held, err) {
		return err == nil, err
	}
	return false, nil
}

// fenceForced is fence for an end without the lock. It is not put off.
func fenceForced(ctx context.Context, p *pass, d *lifecycle.Decision) {
	bounded, stop := context.WithTimeout(ctx, fenceTimeout)
	defer stop()
	p.jobs.FenceForced(bounded, p.run, p.mem.lock.Writer, p.ahead.Left(p.run, d, p.jobs.Lacks(p.run)), d)
}
