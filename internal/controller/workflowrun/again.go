// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

const (
	// lookAgain is when a run under way is looked at at the latest, whatever it waits for: a safety
	// net for wake-ups that were lost, say by a clock that was set back.
	lookAgain = 5 * time.Minute
	// endedLook is when a run that has ended is looked at again at the latest, if it is to be
	// deleted some day: where a clock is set its timer is that of the clock before. Such a
	// look asks nobody.
	endedLook = time.Hour
	// forgetDelay is when a finished run is looked at again to drop what is remembered of it.
	forgetDelay = 5 * time.Second
	// keptPause is when what a policy or a webhook refuses of a run that ended is asked for again:
	// its deletion, or that its status tells of an edit.
	keptPause = 10 * time.Minute
	// belowPause is when it is looked again whether the clean-up of a run below is over, for which
	// locks are kept. The end of a child wakes the run, that of one further down does not.
	belowPause = 30 * time.Second
	// idlePause is when it is looked again whether a run that waits for its locks is still to keep
	// its slot. Nothing wakes it when another run comes before it in line.
	idlePause = 5 * time.Second
	// decideTimeout bounds what a decision under the lock asks of the object store, its rests
	// included.
	decideTimeout = 8 * time.Second
	// fenceTimeout bounds what a pass asks of NATS before it writes a run that another process
	// wrote last. What is not fenced by then is left to the next pass.
	fenceTimeout = 8 * time.Second
	// passTimeout bounds the write and the effects of one round under the lock, also while the
	// operator stops.
	passTimeout = 8 * time.Second
	// cleanTimeout is after how long a pass leaves deleted runs of its name to the next one. For
	// each it may wait for stores that do not answer, and the run of the name waits meanwhile.
	cleanTimeout = 8 * time.Second
	// recoverTimeout is how much of that recovery may take.
	recoverTimeout = passTimeout / 2
	// lookUpTimeout bounds the look for jobs that NATS may have lost.
	lookUpTimeout = 2 * time.Second
	// resultPatience is how long results wait for Redis or the API server before they go back to
	// NATS. How long they wait for a busy lock is a matter of the policy.
	resultPatience = 3 * time.Second
	// refreshDelay is the wait before the next pass after the run had to be read live.
	refreshDelay = 10 * time.Millisecond
	// mostConflicts is how many status writes that were refused as conflicts, though nobody wrote,
	// are taken for a refusal. Each wait between them is twice the one before, so that is after
	// some 2.5 s.
	mostConflicts = 8
	// usualConflicts is how many conflicts with others are nothing to wait for.
	usualConflicts = 2
	// actRetryDelay is the wait before effects that could not be carried out are tried again.
	actRetryDelay = time.Second
	// OthersPatience is how long a process leaves attempts alone that another one dispatched. Only
	// operators that share runs meet such a young attempt: a new leader begins seconds after the
	// last one wrote.
	OthersPatience = time.Second
)

// again asks for another pass at a time; the zero time asks for none.
func (p *pass) again(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(p.r.Clock.Now()), time.Millisecond)}
}

// missing ends a pass over a run that does not exist, by the word of the API server. That may be
// none on the run: a proxy's page is such an answer, and so is that of a server which does not
// serve the resource for a moment. If the run is gone the cache says so, and the next pass ends.
func missing(ctx context.Context, p *pass, cause error) reconcile.Result {
	at := p.mem.missing.next(p.r.Clock.Now())
	log.FromContext(ctx).V(1).Info("The run is not there, by the word of the API server: it is looked at again", "at", at, "cause", cause.Error())
	return p.again(at)
}

// inTime has the next pass made before what is decided and not written is written too late, and
// when a lease is given back that was kept after a write. A write that is due and may not be made
// yet is no reason to look before it may.
func inTime(p *pass, result reconcile.Result) reconcile.Result {
	at := p.ahead.At()
	if !at.IsZero() && at.Before(p.notYet) {
		at = p.notYet
	}
	if due := p.again(pacing.Earliest(at, p.ahead.LingersUntil())).RequeueAfter; due > 0 && (result.RequeueAfter == 0 || due < result.RequeueAfter) {
		result.RequeueAfter = max(due, pacing.MinPause)
	}
	return result
}

// restAhead ends a pass over a run that is ahead of its status if there is nothing to write yet.
func restAhead(p *pass, plan lifecycle.Decision) (result reconcile.Result, done bool) {
	if plan.Changed || !p.ahead.Rests() || p.lock.Wanted(p.run) || p.effectsPending() {
		return reconcile.Result{}, false
	}
	p.ahead.Results = p.batch.Keep(&plan)
	return p.again(p.nextLook(plan.Wake)), true
}

// effectsAgain has effects that failed tried again. An error that says when is planned for, so it
// is logged as news and not as an error with a stack trace, and once for each cause: while Redis or
// NATS is away, each run that ends has one in each pass.
func (p *pass) effectsAgain(ctx context.Context, failed error) reconcile.Result {
	wait := results.RetryDelay(failed, actRetryDelay)
	switch l := log.FromContext(ctx); {
	case errors.Is(failed, driven.ErrHandedOver): // the next owner makes them
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded): // the lease was lost or the operator stops: both are reported where they happen
	case results.AsksFor(failed) > 0:
		if cause := rootOf(failed); cause == p.mem.failing {
			l = l.V(1)
		} else {
			p.mem.failing = cause
		}
		l.Info("Effects are tried again", "delay", wait, "cause", failed.Error())
	default:
		l.Error(failed, "Effects are tried again", "delay", wait)
	}
	return p.again(p.r.Clock.Now().Add(wait))
}

// rootOf is what an error comes from, or the first of several, without the jobs that are named
// around it.
func rootOf(err error) string {
	for {
		var inner []error
		switch is := err.(type) { //nolint:errorlint // the chain is walked
		case interface{ Unwrap() error }:
			inner = []error{is.Unwrap()}
		case interface{ Unwrap() []error }:
			inner = is.Unwrap()
		}
		if len(inner) == 0 || inner[0] == nil {
			return err.Error()
		}
		err = inner[0]
	}
}

// lookAgainAfter has another pass made as soon as an error asks for it; nil asks for none.
func (p *pass) lookAgainAfter(ctx context.Context, err error, what string) {
	if err == nil {
		return
	}
	wait := results.RetryDelay(err, actRetryDelay)
	p.later = pacing.Earliest(p.later, p.r.Clock.Now().Add(wait))
	log.FromContext(ctx).V(1).Info(what, "delay", wait, "cause", err.Error())
}

// nextLook is when the run is looked at again if nothing happens before.
func (p *pass) nextLook(wake time.Time) time.Time {
	limit := lookAgain
	if lifecycle.Finished(p.run) {
		limit = forgetDelay
	}
	next := p.r.Clock.Now().Add(limit)
	for _, at := range []time.Time{wake, p.later, p.batch.NextAt(), p.questions.RetryAt, p.ahead.At()} {
		next = pacing.Earliest(next, at)
	}
	return next
}
