// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// unlocked decides without the lock, and writes an end, or news of the lock. done: the pass ends
// with the result and the error.
func unlocked(ctx context.Context, p *pass, lock lifecycle.Lock) (d lifecycle.Decision, result reconcile.Result, done bool, err error) {
	p.batch.TakeAll() // it may write an end
	if err := deskForAnEnd(ctx, p, lock); err != nil {
		return d, result, true, err
	}
	d = p.decide(ctx, lock)
	p.mem.outputs = p.outputs.Facts() // what an end has found out of outputs counts in the next try
	if d.Changed {
		p.batch.Carry(d.Verdicts)
		fenceForced(ctx, p, &d)
		bounded, stop := context.WithTimeout(ctx, passTimeout)
		defer stop()
		if err := p.persist(bounded, d); err != nil {
			result, err = p.refused(ctx, err)
			return d, result, true, err
		}
		if _, err := p.act(bounded, d); err != nil {
			return d, result, true, err
		}
	}
	putOff(p, &d)
	p.lock.LossTold(p.run)
	return d, result, false, nil
}

// putOff notes what a deadline waits for that nobody may write yet: it waits for a minute at most.
// What the stream gave stays out of status, and is no news when it is given again. What takes more
// than a pass may evaluate, or load, takes as much in the next, since nothing is written in
// between.
func putOff(p *pass, d *lifecycle.Decision) {
	if !d.Deferred {
		return
	}
	switch {
	case d.Postponed:
		p.questions.Missing(actRetryDelay, "the outputs of items that were answered are more than a pass may load")
	case d.Cut:
		p.questions.Missing(actRetryDelay, "the expressions of steps that were answered take more than a pass may evaluate")
	}
	if !d.Changed {
		p.questions.Heard(*d, p.batch)
	}
}

// endUnkept ends a run that cannot have its revision for now, if it is to end anyway: it is
// cancelled or deleted, say, and its slot and its locks are not to stay taken. That is written as
// an end without the lock is. Nothing else is decided: only the revision says what its steps are to
// do, and when they are to end. Nor does it clean up.
func endUnkept(ctx context.Context, p *pass) (reconcile.Result, error) {
	p.desk.Stay()
	lock, _ := p.lock.Without(p.run, p.unkept)
	lock.State = lifecycle.LockBusy // it is not Redis that is away
	if _, result, done, err := unlocked(ctx, p, lock); done || lifecycle.Finished(p.run) {
		return result, err
	}
	return reconcile.Result{}, p.unkept
}
