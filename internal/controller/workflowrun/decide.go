// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/outputs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// maxLockTurns is how often one pass decides again with answers about locks, before it writes what
// it has and leaves the others to the next one: each item that is refused has the next one ask.
const maxLockTurns = 128

// decide decides, finds out what the decision lacks, and decides again until it lacks nothing. If
// the object store, the stream or the API server cannot be asked, what the decision lacks is left
// undone, to be tried again soon: the rest of it is good, a cancel above all. Locks across
// runs come last: what else is lacking may have the step that wants them end, or another one
// take its place.
func (p *pass) decide(ctx context.Context, lock lifecycle.Lock) lifecycle.Decision {
	for tries := p.outputs.Tries(); ; {
		d := lifecycle.Decide(p.input(ctx, lock))
		p.evaluated = d.Evaluated
		noteValid(p)
		p.lists = d.Lists
		p.r.lists.keep(p.run.Namespace, p.run.UID, d.Lists)
		asked := p.askAbout(ctx, d)
		switch {
		case d.Cut && p.desk.SitDown(ctx):
			continue // with time for what takes long
		case p.desk.InLine():
			return d
		case asked:
			continue // what was found out does not wait for the object store
		case d.Needs.Outputs() && supply(ctx, p, tries, d.Needs):
			continue
		case askLocks(ctx, p, d.Needs.Locks):
			continue
		}
		if d.Needs.Outputs() {
			p.outputsMissing(ctx, d, tries.Cause)
		}
		return d
	}
}

// supply stores and reads what a decision lacks, and says whether another one has more to decide
// on. The object store may be silent for seconds, and there are one or two desks for all: a pass
// leaves its own meanwhile, unless it has, or is to read, what is large. Nobody waits for a desk
// with the lock of a run.
func supply(ctx context.Context, p *pass, tries *outputs.Tries, n lifecycle.Needs) (more bool) {
	if p.lock.Held != nil || !p.desk.Has() || shares.Large(p.outputs.With(n)+p.batch.Bytes()) {
		return tries.Supply(ctx, n)
	}
	p.desk.StandUp()
	more = tries.Supply(ctx, n)
	p.desk.SitDown(ctx)
	return more
}

// decideFirst decides before the lock is taken, and goes on for a while with what a decision would
// leave to the next pass: one write is for all of it. What fails has no value that could be known,
// and is evaluated again.
func decideFirst(ctx context.Context, p *pass) lifecycle.Decision {
	for known := 0; ; {
		d := p.decide(ctx, p.lock.Tentative(p.run))
		if !d.Cut || p.evaluated == nil || len(p.evaluated.Values) <= known || !mayGoOn(ctx, p) {
			return d
		}
		more := *p.evaluated
		more.Cost, known = 0, len(more.Values)
		p.evaluated = &more
	}
}

// mayGoOn says whether a pass may do more before it takes the lock. It rests first. A run with
// locks may have some of them by now, for which others may wait; one that is ahead of its status
// is to be written soon.
func mayGoOn(ctx context.Context, p *pass) bool {
	return p.lock.Hopeful() && !p.run.HasLocks() && !p.ahead.Lags() && p.desk.GoOn(ctx)
}

// noteValid remembers that the spec was validated: it may take seconds, and not every pass after
// that comes to a write.
func noteValid(p *pass) {
	if p.evaluated != nil && p.evaluated.Valid {
		p.mem.valid = validAs(p)
	}
}

// knownValid is what a pass knows of the spec without a look at it; nil: nothing.
func knownValid(p *pass) *lifecycle.Evaluated {
	if p.mem.valid == "" || p.mem.valid != validAs(p) {
		return nil
	}
	return &lifecycle.Evaluated{Valid: true}
}

// validAs names what is validated: the spec never changes, and a Workflow has another revision
// then. What a run starts from may still change; "": it is not remembered.
func validAs(p *pass) string {
	switch revision := p.template.Revision; {
	case p.spec.StartFrom != nil:
		return ""
	case revision == nil:
		return "spec"
	default:
		return revision.Name + " " + revision.Revision
	}
}

// decideWithin decides under a lease, in a time of its own.
func (p *pass) decideWithin(held context.Context, lock lifecycle.Lock) lifecycle.Decision {
	bounded, stop := context.WithTimeout(held, decideTimeout)
	defer stop()
	return p.decide(bounded, lock)
}

// input is what the core decides on, for a given state of the lock.
func (p *pass) input(ctx context.Context, lock lifecycle.Lock) lifecycle.Input {
	in := lifecycle.Input{
		Run: p.run, Now: p.r.Clock.Now(), Lock: lock, Tenant: p.tenant,
		Permits: p.permits, Template: p.template, Origin: p.origin, Gate: p.slot.Gate, Claim: p.claim, Locks: p.locks, Signals: p.signals, SignalsAsOf: p.signalsAsOf, Workers: p.workers, NATSDown: p.r.NATS.Outage(), NoRoom: p.mem.noRoom.since, Lack: p.mem.noRoom.lack,
		Parent: p.relatives.Parent, Children: p.relatives.Children,
		Lost: p.jobs.Lost(), Results: p.batch.Facts(), DeadLetters: p.batch.DeadLetters(), Answers: p.questions.Answers(),
		Lists: knownLists(p), Payloads: p.outputs.Payloads(),
		Checkpoint: p.ahead.Facts(),
		Evaluated:  p.evaluated, Quick: !p.desk.Has(), Form: p.mem.form(), MaxRetryAfter: p.policy.Delivery.MaxDelay,
	}
	in.Policy = p.policyReference(lock)
	in.Pause = func() { p.desk.Rest(ctx) }
	in.Yield = func() bool { return p.desk.Yield(ctx) }
	return in
}

// askAbout asks what a decision lacks beside outputs and locks, and says whether another one has
// more to decide on.
func (p *pass) askAbout(ctx context.Context, d lifecycle.Decision) bool {
	n := d.Needs
	if n.Claim {
		claim, err := p.r.Slots.Claim(ctx, asStored(p, p.run), p.tenantName())
		p.claim = claim
		p.lookAgainAfter(ctx, err, "Idempotency key not claimed")
	}
	if n.Admission {
		slot, err := askSlot(ctx, p)
		p.slot = slot
		p.lookAgainAfter(ctx, err, "No answer about a slot")
	}
	stayWithAnswers(p)
	answered := n.Answers && p.questions.Ask(ctx, p.run.UID, p.batch)
	signalled := n.Signals && askSignals(ctx, p, d.Deferred)
	return n.Claim || n.Admission || answered || signalled
}

// askSlot asks the tenant's quota for a slot, unless the policy that limits the run was deleted a
// moment ago. A place in its line stays.
func askSlot(ctx context.Context, p *pass) (slots.Answer, error) {
	if !p.deleted.Closes(p.tenantName()) {
		may, idle := p.mem.slot.Idle(p.run, p.r.Clock.Now())
		answer, err := p.r.Slots.Ask(ctx, &p.mem.slot, p.run, p.tenantName(), p.policy)
		answer.Gate.MayKeep, answer.Gate.Idle = may, idle
		return answer, err
	}
	answer, again := p.deleted.Answer(p.r.Clock.Now())
	p.later = pacing.Earliest(p.later, again)
	return answer, nil
}

// askLocks asks for locks, and says whether there are answers to decide on. What is too much for
// this pass is left to the next one.
func askLocks(ctx context.Context, p *pass, asks []lifecycle.LocksAsk) bool {
	if len(asks) == 0 {
		return false
	}
	if p.lockTurns++; p.lockTurns > maxLockTurns {
		p.later = pacing.Earliest(p.later, p.r.Clock.Now())
		return false
	}
	lifecycle.AskInTurn(asks, func(ask lifecycle.LocksAsk) lifecycle.LocksState {
		asked, err := p.r.Holds.Ask(ctx, &p.mem.holds, p.locks, withParent(p), ask)
		p.locks = asked
		p.lookAgainAfter(ctx, err, "No answer about locks")
		return asked[ask.Part].State
	})
	stayWithAnswers(p)
	return true
}

// withParent is the run with the parent that it claims, also before a write pins that. Locks know
// its tree by that, in which no run is cancelled for another, and rings are found.
func withParent(p *pass) *v1alpha1.WorkflowRun {
	parent := p.relatives.Parent
	if parent == nil || p.run.Status != nil && p.run.Status.Parent != nil {
		return p.run
	}
	run, claim := *p.run, parent.Claim
	run.Status = &v1alpha1.WorkflowRunStatus{}
	if p.run.Status != nil {
		p.run.Status.DeepCopyInto(run.Status)
	}
	run.Status.Parent = &claim
	return &run
}

// stayWithAnswers has a pass go on where it is that has got an answer which is not given again,
// that of a gate of strategy Lock, or locks, for which others may wait.
func stayWithAnswers(p *pass) {
	answered := p.slot.Gate.State != lifecycle.GateUnasked && p.slot.Until.IsZero()
	if answered && p.policy.Admission.Waits() || len(p.locks) > 0 {
		p.desk.Stay()
	}
}

// outputsMissing has what a decision lacks of the object store tried again.
func (p *pass) outputsMissing(ctx context.Context, d lifecycle.Decision, cause error) {
	if errors.Is(cause, driven.ErrHandedOver) || p.desk.InLine() {
		return // the next owner has them, or the next pass
	}
	wait := results.RetryDelay(cause, actRetryDelay)
	if ctx.Err() == nil {
		log.FromContext(ctx).Info("Outputs in the object store wait", "delay", wait, "cause", cause.Error())
	}
	p.outputs.Lacking = cause
	p.later = pacing.Earliest(p.later, p.r.Clock.Now().Add(wait))
	if d.Deferred {
		p.questions.Missing(wait, cause.Error())
	}
}

// pauseEnds is when the pause after the last write of the run is over; zero: it is, or there is no
// next pass.
func pauseEnds(p *pass) time.Time {
	if p.ahead.Closes {
		return time.Time{}
	}
	news := pacing.News{Results: p.batch.Paced(), Patient: p.ahead.Lags() || crowded(p)}
	if next := p.mem.lastWrite.Next(news, p.run); next.After(p.r.Clock.Now()) {
		return next
	}
	return time.Time{}
}

// tooEarly is when the run may be written next, if it is to be written and that time has not come;
// else zero. It is asked before what a decision lacks is found out and stored: the next decision
// will have more results, and other outputs of items to store.
func (p *pass) tooEarly(ctx context.Context) time.Time {
	next := pauseEnds(p)
	if next.IsZero() {
		return next
	}
	in := p.input(ctx, p.lock.Tentative(p.run))
	in.Glance = true // what expressions give is a matter of the decision that is written
	if d := lifecycle.Decide(in); (!d.MayLag || !p.ahead.Likely(wroteLast(p))) && (d.Changed || d.Needs.Any()) {
		return next
	}
	return time.Time{}
}

// effectsPending says whether effects of earlier writes are still to be carried out.
func (p *pass) effectsPending() bool {
	recoverable := len(p.jobs.Lacks(p.run)) > 0 && p.recoverFrom().IsZero()
	return len(p.mem.withdrawals) > 0 || recoverable || p.childrenPending()
}

// childrenPending says whether a child run is to be created.
func (p *pass) childrenPending() bool {
	return len(p.mem.children.NotYetCreated(p.run, p.r.Clock.Now())) > 0
}

// executable says whether any effect that is pending can be carried out now.
func (p *pass) executable() bool { return p.r.NATS.Connected() || p.childrenPending() }

// mustClaim says whether attempts may have to be published again from a status that has to be
// written first. See leases.
func (p *pass) mustClaim() bool {
	return len(p.jobs.Lacks(p.run)) > 0 && p.lock.MustClaim(p.ahead.Stored)
}

// recoverFrom is when attempts that another process dispatched are worth the lock and a look-up.
// Until then that process publishes them, if it lives. Zero: now. A time of dispatch ahead of this
// process's clock is of a clock that differs, and delays nothing.
func (p *pass) recoverFrom() time.Time {
	if !p.policy.RunLock.Wait.Poll {
		return time.Time{} // a place in line that is not used when its turn comes keeps the lock from others for a second
	}
	_, writer := leases.FenceOf(p.run)
	if writer == p.mem.lock.Writer || len(p.jobs.Lacks(p.run)) == 0 {
		return time.Time{}
	}
	now, last := p.r.Clock.Now(), lastDispatch(p.run)
	if at := last.Add(p.r.RecoverPatience); at.After(now) && !last.After(now) {
		return at
	}
	return time.Time{}
}

// lastDispatch is when status dispatched an attempt last; zero: it dispatched none.
func lastDispatch(run *v1alpha1.WorkflowRun) (last time.Time) {
	for i := range run.Status.Steps {
		if at := run.Status.Steps[i].DispatchedAt; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}
