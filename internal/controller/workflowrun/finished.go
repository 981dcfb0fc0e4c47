// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// finished settles what still arrives for a run that has ended, takes back its last jobs, and
// deletes it when its time is over (expire).
func (p *pass) finished(ctx context.Context) (reconcile.Result, error) {
	p.r.Leases.Cache.Drop(ctx, p.run.UID) // if another ended it
	p.mem.children.LeaveLine()
	p.r.Liveness.Forget(p.key)
	p.r.Signals.forget(p.key)
	p.r.lists.forget(p.run.UID)
	in := p.input(ctx, p.lock.Tentative(p.run))
	in.EndStored = endStored(ctx, p)
	d := lifecycle.Decide(in)
	p.batch.Bury(ctx, d)
	p.batch.Settle(ctx, d, p.overdue)
	failed := errors.Join(p.withdraw(ctx), p.release(ctx))
	p.jobs.Tidy(p.run, p.mem.withdrawals)
	switch result, over, err := expire(ctx, p, d); {
	case err != nil || over && (failed == nil || result.RequeueAfter == 0):
		return result, err
	case over: // perhaps: see missing
		result.RequeueAfter = min(result.RequeueAfter, p.effectsAgain(ctx, failed).RequeueAfter)
		return result, nil
	}
	if err := noteEdit(ctx, p, in.EndStored); err != nil {
		return reconcile.Result{}, err
	}
	if failed != nil {
		return p.effectsAgain(ctx, failed), nil
	}
	p.mem.failing = ""
	return p.again(nextAfterEnd(p, d.Wake)), nil
}

// endStored is when the API server stored the end of a run which, by its status, is still to end;
// zero: status may be believed, or it is not known. That is the time of the last write of its
// status, by the server's clock, which managedFields have and the cache has not.
func endStored(ctx context.Context, p *pass) (at time.Time) {
	if !lifecycle.EndsAhead(p.run, p.r.Clock.Now()) {
		return at
	}
	live := &v1alpha1.WorkflowRun{}
	if err := p.r.Live.Get(ctx, p.key, live); err != nil || live.UID != p.run.UID {
		p.later = pacing.Earliest(p.later, p.r.Clock.Now().Add(lookAgain))
		log.FromContext(ctx).V(1).Info("A run ended by a clock that was ahead, and when that was stored cannot be read", "cause", fmt.Sprint(err))
		return at
	}
	return statusStored(live.ManagedFields)
}

// statusStored is when the status of an object was last written; zero: that is not known.
func statusStored(fields []metav1.ManagedFieldsEntry) (at time.Time) {
	for _, f := range fields {
		if f.Subresource == "status" && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// nextAfterEnd is when a run that has ended is looked at again; zero: when it changes. What is
// remembered of it is forgotten, unless it is of use yet.
func nextAfterEnd(p *pass, wake time.Time) time.Time {
	if !wake.IsZero() { // those of many runs are spread
		limit := endedLook - time.Duration(p.r.Rand()*float64(endedLook/4))
		wake = pacing.Earliest(wake, p.r.Clock.Now().Add(limit))
	}
	next := pacing.Earliest(pacing.Earliest(wake, p.later), p.batch.NextAt())
	switch {
	case p.mem.last != nil: // the cache has not caught up; until then this process keeps a copy of its own
		next = pacing.Earliest(next, p.r.Clock.Now().Add(forgetDelay))
	case !p.mem.holds.Kept() && p.mem.undeleted.tries == 0 && p.mem.unnoted.tries == 0:
		p.r.memories.forget(p.key)
		p.r.Dispatch.Forget(string(p.run.UID))
	}
	return next
}

// expire deletes the run when its time is over, and nobody needs it any more. A deletion that is
// under way is left as it is: another one would take back that it keeps what the run owns
// (kubectl delete --cascade=orphan). One that was changed meanwhile may have another time.
func expire(ctx context.Context, p *pass, d lifecycle.Decision) (result reconcile.Result, over bool, err error) {
	if !d.Delete || !p.run.DeletionTimestamp.IsZero() {
		p.mem.undeleted = pause{}
		return result, false, nil
	}
	if until := p.mem.undeleted.until; until.After(p.r.Clock.Now()) {
		p.later = pacing.Earliest(p.later, until)
		return result, false, nil
	}
	switch needed, err := isNeeded(ctx, p); {
	case err != nil:
		return result, false, err
	case needed:
		p.later = pacing.Earliest(p.later, p.r.Clock.Now().Add(lookAgain))
		return result, false, nil
	}
	return deleteEnded(ctx, p)
}

// deleteEnded deletes the run as it was read.
func deleteEnded(ctx context.Context, p *pass) (result reconcile.Result, over bool, err error) {
	as := client.Preconditions{UID: &p.run.UID, ResourceVersion: &p.run.ResourceVersion}
	cause := p.r.Client.Delete(ctx, p.run, as, client.PropagationPolicy("Background"))
	switch {
	case cause == nil:
		return result, true, nil
	case apierrors.IsNotFound(cause):
		return missing(ctx, p, cause), true, nil
	case apierrors.IsConflict(cause):
		if result, refused, err := conflicted(ctx, p); !refused {
			return result, true, err
		}
	case ctx.Err() != nil:
		return result, false, fmt.Errorf("delete run after its TTL: %w", cause)
	}
	level, at := leftAlone(p, &p.mem.undeleted, cause)
	log.FromContext(ctx).V(level).Info("A run whose time is over cannot be deleted: it is tried again", "at", at, "cause", cause.Error())
	return result, false, nil
}

// conflicted reads the run live after a conflict. If it is as it was, a webhook refused with that
// code: another pass at once would have it refuse again.
func conflicted(ctx context.Context, p *pass) (result reconcile.Result, refused bool, err error) {
	was := p.mem.last
	result, err = p.refresh(ctx)
	if now := p.mem.last; now == was || now.ResourceVersion != p.run.ResourceVersion {
		return result, false, err
	}
	p.mem.last = was
	return reconcile.Result{}, true, nil
}

// isNeeded says whether other runs need one that ended: its parent has not taken its end yet, or a
// run below is at its clean-up, and would be deleted with it. The write that takes the end wakes
// the run, and so does the end of a child; for that of one further down it looks again.
func isNeeded(ctx context.Context, p *pass) (bool, error) {
	parent, err := p.r.Children.Parent(ctx, p.run)
	if err != nil || parent != nil && parent.Over == "" {
		return true, err
	}
	return p.r.Children.AnyUnderWay(ctx, p.run)
}

// leftAlone has what the API server did not do tried again later. A policy or a webhook may refuse
// it for good, and that of many other runs: it is told once. The first answer that there was a
// conflict, where there was none, may be an error.
func leftAlone(p *pass, m *pause, cause error) (level int, at time.Time) {
	level = min(m.tries, 1)
	at = m.next(p.r.Clock.Now())
	if passes.Refused(cause) && (level > 0 || !apierrors.IsConflict(cause)) {
		at = p.r.Clock.Now().Add(keptPause)
		m.until = at
	}
	p.later = pacing.Earliest(p.later, at)
	return level, at
}

// noteEdit has the status of a run that ended say that an edit of it was seen. Nothing else follows
// from one: but tools take a run for one that has work to do, or wait for it, until status is about
// its generation. It also says when the end was stored, unless that is zero: once the end is not
// ahead any more nobody would ask, and a later write moves the time that the API server has. The
// error is that the pass is in line for a desk.
func noteEdit(ctx context.Context, p *pass, stored time.Time) error {
	next := upToDate(p.run, stored)
	if next == nil {
		p.mem.unnoted = pause{}
		return nil
	}
	m := &p.mem.unnoted
	if m.until.After(p.r.Clock.Now()) {
		p.later = pacing.Earliest(p.later, m.until)
		return nil
	}
	bounded, stop := context.WithTimeout(ctx, passTimeout)
	defer stop()
	defer context.AfterFunc(p.while, stop)() //nolint:contextcheck // that of the partition
	_, cause := p.put(bounded, next)
	switch {
	case cause == nil:
		p.run, p.mem.last, *m = next, asStored(p, next), pause{}
		return nil
	case p.desk.InLine():
		return cause
	case apierrors.IsConflict(cause):
		if result, refused, err := conflicted(ctx, p); !refused {
			if result.RequeueAfter > 0 {
				p.later = pacing.Earliest(p.later, p.r.Clock.Now().Add(result.RequeueAfter))
			}
			return err
		}
	}
	level, at := leftAlone(p, m, cause)
	log.FromContext(ctx).V(level).Info("An edit of a run that ended, or when its end was stored, cannot be noted: it is tried again", "at", at, "cause", cause.Error())
	return nil
}

// upToDate is a run with a status, and conditions, of its generation, which says when its end was
// stored, if that is before its end; nil: there is nothing to say, or the run is about to go.
func upToDate(run *v1alpha1.WorkflowRun, stored time.Time) *v1alpha1.WorkflowRun {
	seen := run.Status.ObservedGeneration
	edited, ahead := seen > 0 && seen < run.Generation, !stored.IsZero() && stored.Before(run.Status.CompletedAt.Time)
	if !edited && !ahead || !run.DeletionTimestamp.IsZero() {
		return nil
	}
	next := run.DeepCopy()
	if ahead {
		next.Status.EndStoredAt = &metav1.Time{Time: stored}
	}
	if !edited {
		return next
	}
	next.Status.ObservedGeneration = run.Generation
	for i := range next.Status.Conditions {
		next.Status.Conditions[i].ObservedGeneration = run.Generation
	}
	return next
}
