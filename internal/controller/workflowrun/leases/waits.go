// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// jitterPercent spreads all waits but those for busy locks, which policies tune.
const jitterPercent = 20

// Wait draws a wait, anew for each use so that contenders spread. Only waits for a busy lock
// are the policy's.
func (s *Session) Wait(class string) time.Duration {
	if class == bus.ClassLockBusy {
		return s.policy.RunLock.BusyRetry.Wait(s.all.Rand())
	}
	return policy.BusyRetry{Delay: s.all.Breaker.pause(), JitterPercent: jitterPercent}.Wait(s.all.Spread())
}

// CountWait counts a wait for a busy lock, of a pass (reconcile) or a result.
func (s *Session) CountWait(path string, wait time.Duration) {
	s.all.Metrics.BusyRetry(path, bus.ClassLockBusy, s.policy.Name, s.policy.RunLock.BusyRetry.Fixed, wait)
}

// RetryAt is when the lock that is busy is tried again after a wait, and sooner if its run is to
// say then that it waits.
func (s *Session) RetryAt(ctx context.Context, run *v1alpha1.WorkflowRun, now time.Time, wait time.Duration) (at time.Time) {
	s.CountWait("reconcile", wait)
	log.FromContext(ctx).V(1).Info("Run lock busy, tried again later", "class", bus.ClassLockBusy, "delay", wait, "policy", s.policy.Name)
	at = now.Add(wait)
	s.busyRetries++
	s.Votes.busy(now, wait)
	if due := s.busy.overdueAt(s.policy.Patience()); due.After(now) {
		at = pacing.Earliest(at, due)
	}
	s.busy.looked(run)
	return at
}

// NotBefore is when a lock that was found busy is tried again for results that have come since.
// Zero: at once, as the run is another one, or was called since it is its turn.
func (s *Session) NotBefore(run *v1alpha1.WorkflowRun) time.Time {
	if s.kept != nil || (s.called != nil && s.called.Load()) {
		return time.Time{}
	}
	return s.busy.notBefore(run, s.policy.RunLock.BusyRetry)
}

// Hopeful says whether the lock is most likely to be had.
func (s *Session) Hopeful() bool {
	return s.kept != nil || s.busy.since.IsZero() && !s.all.Breaker.failing()
}

// WasBusy says whether the run waits for a lock that was busy when it was last asked for.
func (s *Session) WasBusy() bool { return s.kept == nil && !s.busy.since.IsZero() }

// WaitedEnough ends the wait for a lock: the run has it, or wants it no more.
func (s *Session) WaitedEnough(run *v1alpha1.WorkflowRun) {
	s.CountLeaseless()
	s.busy, s.busyRetries, s.leaselessSince, s.Votes.tries = busyWait{}, 0, time.Time{}, 0
	s.noteInHand(run)
}

// CountLeaseless counts, up to now, how long a run that lost its lease has wanted another: with
// each try, so that the figure grows during an outage and not after it.
func (s *Session) CountLeaseless() {
	if s.leaselessSince.IsZero() {
		return
	}
	now := s.all.Clock.Now()
	s.all.Metrics.Leaseless(s.policy.Name, now.Sub(s.leaselessSince))
	s.leaselessSince = now
}

// noteInHand measures a take-over: from the moment at which this process began to drive a run
// to that at which it looks after it, which is when it has the run's lock, or knows that
// nothing is due.
func (s *Session) noteInHand(run *v1alpha1.WorkflowRun) {
	if s.all.DrivenSince == nil {
		return // it takes none over
	}
	began := s.all.DrivenSince(run.UID)
	if s.inHand || began.IsZero() {
		return
	}
	s.inHand = true
	_, writer := FenceOf(run)
	if writer != "" && s.Writer == "" && !lifecycle.Finished(run) && run.CreationTimestamp.Time.Before(began) {
		s.all.TakeOver.Observe(s.all.Clock.Since(began).Seconds())
	}
}
