// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// refused ends a pass whose write was not accepted: nothing of it took effect, so there is no
// effect to carry out.
func (p *pass) refused(ctx context.Context, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		p.lock.Drop(ctx)
		result := missing(ctx, p, err)
		p.notYet = p.r.Clock.Now().Add(result.RequeueAfter)
		return result, nil
	case apierrors.IsConflict(err):
		if result, done, err := afterConflict(ctx, p, err); done {
			return result, err
		}
	case isStaleWriter(err):
		// The stored fence is above the lease's: another wrote meanwhile. The next take
		// starts above it.
		p.trial.CountFenceRefused(&p.mem.fenceRefused)
		p.lock.Drop(ctx)
		return p.refresh(ctx)
	}
	if p.ahead.Lags() {
		return checkpointFailed(ctx, p, err)
	}
	return p.unwritten(ctx, err)
}

// afterConflict ends a pass whose write was refused as a conflict, unless that is to be taken for a
// refusal like others: the run was as it had been, several times. Of a few such answers nothing
// follows. They may be those of a server that is ill, and no result is to be blamed for that. Those
// who edit a run all the time do not have it written all the time.
func afterConflict(ctx context.Context, p *pass, cause error) (result reconcile.Result, done bool, err error) {
	result, refused, err := conflicted(ctx, p)
	if err != nil {
		p.handBack(ctx, cause)
		return result, true, err
	}
	c := &p.mem.conflicts
	c.all++
	if refused {
		c.alone++
	} else {
		p.lock.DropIfOutdated(ctx, p.mem.newer(p.run)) // another wrote; a mere edit of the spec, which is a conflict as well, does not end the lease
	}
	switch {
	case refused && c.alone >= mostConflicts:
		return result, false, nil
	case !refused && c.all <= usualConflicts:
		return result, true, nil
	}
	p.handBack(ctx, cause)
	c.until = p.r.Clock.Now().Add(refreshDelay << min(c.all, mostConflicts-1))
	p.notYet = c.until
	return p.again(p.notYet), true, nil
}

// checkpointFailed ends a pass whose checkpoint was not accepted, and not for another writer.
func checkpointFailed(ctx context.Context, p *pass, cause error) (reconcile.Result, error) {
	switch {
	case p.ahead.Closes, errors.Is(context.Cause(p.while), ownership.ErrNotOwned): //nolint:contextcheck // the cause is that of the hand-over
		// Who gives the run up says nothing of later steps: whoever drives it next may be ahead.
		return reconcile.Result{}, cause
	case outage(cause):
		return p.unwritten(ctx, cause) // what is ahead may be written later
	}
	// What is ahead is dropped, and the run goes on as with EveryStep: so the one result that is to
	// blame is found.
	log.FromContext(ctx).Info("A checkpoint is not taken: the run is written at every step from now on", "cause", cause.Error())
	p.ahead.Off = true
	dropAhead(p)
	return p.again(p.mem.lastWrite.Next(pacing.News{}, p.run)), nil
}

// newer is the run as this process last wrote it or read it live.
func (m *memory) newer(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	if m.last != nil {
		return m.last
	}
	return run
}

// unwritten ends a pass whose write the API server did not take, for a reason that may last. In an
// outage results go back to NATS when their patience is over, and none is to blame. A refusal may
// be for one of the results in the write: half of them are tried at a time, until one is refused
// alone; only that one counts as failed, and the others do not wait for it. None is to blame if the
// status as it is would be refused, too, or while nobody knows that.
func (p *pass) unwritten(ctx context.Context, cause error) (reconcile.Result, error) {
	n := len(p.batch.Carried())
	var write *writeError
	ending := errors.As(cause, &write) && write.ending
	switch {
	case tooLarge(cause) && (n == 0 || ending):
		return p.shrink(ctx, cause), nil
	case outage(cause):
		tellErrors(p, cause)
		p.handBack(ctx, cause)
		return reconcile.Result{}, cause
	}
	switch unchanged := refusesUnchanged(ctx, p, cause); {
	case unchanged == isRefused || n == 0:
		p.handBack(ctx, cause)
		return standOff(ctx, p, cause), nil
	case unchanged == isUnknown:
		p.handBack(ctx, cause)
		p.notYet = p.r.Clock.Now().Add(actRetryDelay)
		return p.again(p.notYet), nil
	}
	blame(ctx, p, cause)
	return p.again(p.mem.lastWrite.Next(pacing.News{}, p.run)), nil
}

// blame is for a write that was refused for one of the results in it, perhaps.
func blame(ctx context.Context, p *pass, cause error) {
	carried := p.batch.Carried()
	switch n := len(carried); {
	case p.batch.CarriesFound():
		p.questions.Refused(p.batch.FailureWait, cause)
		log.FromContext(ctx).Info("A write with results that were not delivered is refused: they wait", "results", n, "cause", cause.Error())
	case n > 1:
		p.mem.atOnce, p.mem.suspects, p.mem.blamed = n/2, max(n, p.mem.suspects), false
		log.FromContext(ctx).Info("A write with several results is refused: fewer at a time", "results", n, "next", p.mem.atOnce, "cause", cause.Error())
	default:
		p.mem.atOnce, p.mem.blamed = 1, true // until a write is taken: it may be that all are refused
		one, budget := carried[0], budgetFor(p, cause)
		log.FromContext(ctx).Error(cause, "A result is refused", "job", one.Fact.ID.String(), "failures", one.Failures+1, "budget", budget)
		p.batch.Refuse(ctx, one, cause, budget)
	}
}

// triesForSize is how often a result is tried for which the object has no room. Each try is a write
// of 1.5 MiB, and room is only made by who takes metadata away.
const triesForSize = 3

// budgetFor is how many deliveries of a result may fail that is refused for a cause.
func budgetFor(p *pass, cause error) int {
	if tooLarge(cause) {
		return min(p.policy.Delivery.MaxDeliveries, triesForSize)
	}
	return p.policy.Delivery.MaxDeliveries
}

// mostRefusal bounds what an event says of a refusal.
const mostRefusal = 700

// tellRefused tells people that the API server refuses the run's status, which has room for no
// condition then: an admission policy does that, say. It is told once for each reason until a
// write is taken.
func tellRefused(p *pass, cause error) {
	why := cmp.Or(apierrors.ReasonForError(cause), "None") // a webhook need not give one
	if p.mem.refused == why {
		return
	}
	p.mem.refused = why
	p.r.Events.Eventf(p.run, nil, corev1.EventTypeWarning, "StatusRefused", "Advance",
		"The API server refuses the run's status, so the run stands still: %s", bounds.Printable(cause.Error(), mostRefusal))
}

// errorsTold is after how many errors in a row people are told: some ten seconds, as tries go. A
// server that changes its etcd's leader is done by then.
const errorsTold = 8

// tellErrors tells people that the API server answers each write of the run's status with an error
// of its own, as it does while a webhook is down that must be asked. A server that is not ready, or
// too busy, is not to blame: the events would have to go there, too.
func tellErrors(p *pass, cause error) {
	var answer apierrors.APIStatus
	if !errors.As(cause, &answer) || answer.Status().Code != http.StatusInternalServerError {
		return
	}
	if p.mem.serverErrors++; p.mem.serverErrors >= errorsTold {
		tellRefused(p, cause)
	}
}

// handBack returns results that have waited too long for Redis or the API server to NATS.
func (p *pass) handBack(ctx context.Context, cause error) {
	p.batch.HandBack(ctx, resultPatience, bus.ClassStoreUnavailable, cause, func() time.Duration {
		return p.lock.Wait(bus.ClassStoreUnavailable)
	})
}

// standsStill ends a pass over a run for whose status there was no room, before it reads anything,
// or waits for anything.
func standsStill(ctx context.Context, p *pass) (result reconcile.Result, stands bool) {
	if p.mem.full == nil || !p.mem.full.until.After(p.r.Clock.Now()) {
		return reconcile.Result{}, false
	}
	return waitForRoom(ctx, p), true
}

// shrink is for a write that was refused for its size, and not for one of its results: the next one
// ends the run, in a form that needs less room, at once if it has the lock. The bare form fits
// wherever a status was written before. A run that was never written may have no room even for
// that: it is tried now and then, as somebody may take labels away.
func (p *pass) shrink(ctx context.Context, cause error) reconcile.Result {
	p.r.Metrics.tooLarge.WithLabelValues(forms[p.mem.form()]).Inc()
	m := p.mem.full
	if m == nil {
		m = fullAs(p.run)
		p.mem.full = m
	}
	if m.form < lifecycle.FormBare {
		m.form++
		p.shrunk = true
		log.FromContext(ctx).Info("The object has no room for the run's status: the run ends", "form", forms[m.form], "cause", cause.Error())
		return p.again(p.mem.lastWrite.Next(pacing.News{}, p.run))
	}
	m.until = p.r.Clock.Now().Add(pacing.NoRoom(m.tries, lookAgain))
	m.tries++
	log.FromContext(ctx).Error(cause, "The object has no room for any status of the run: it is tried again", "at", m.until)
	p.r.Events.Eventf(p.run, nil, corev1.EventTypeWarning, v1alpha1.ReasonObjectTooLarge, "Advance",
		"The object leaves no room for any status: too many labels, or other metadata. The run cannot begin or end until there is room")
	return waitForRoom(ctx, p)
}

// waitForRoom ends a pass over a run that is written later. Meanwhile it does without its place in
// the queue, and without locks: a status that says it has some is larger than the bare form, so
// nobody can write what was granted before the object changes.
func waitForRoom(ctx context.Context, p *pass) reconcile.Result {
	if lifecycle.Admitted(p.run) {
		return p.again(p.mem.full.until)
	}
	failed := errors.Join(p.r.Slots.Release(ctx, &p.mem.slot, p.run.UID), p.r.Holds.ReleaseAll(ctx, &p.mem.holds))
	if failed != nil {
		return p.effectsAgain(ctx, failed)
	}
	return p.again(p.mem.full.until)
}
