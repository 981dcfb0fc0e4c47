// SPDX-License-Identifier: Apache-2.0

package results

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ErrAhead is why a result goes back to NATS whose attempt no read of the run knows: only a run
// that lost its past can be behind.
var ErrAhead = errors.New("the result is of an attempt that the run does not know yet")

// Batches makes the batches of passes.
type Batches struct {
	Inbox    *Inbox
	Settler  *Settler
	Clock    clock.PassiveClock
	Spread   func() float64                             // uniform in [0,1)
	Applied  func(policy string, latency time.Duration) // is told of each result that was applied
	PerWrite prometheus.Observer
}

// Batch is what waits for a run in one pass.
type Batch struct {
	all      *Batches
	run      types.UID
	policy   policy.Effective
	apply    []*Pending // in this pass
	company  []*Pending // left for a later pass, in which they have company, unless the run changes in this one
	doomed   []*Pending // to be put aside once status says so
	carried  []*Pending // those to apply that are in the write under the lease
	kept     []*Pending // those of which a decision that is not written yet has a verdict
	covered  bool       // that decision is written now
	journal  bool       // attempts may have been dispatched of which status does not know
	readyAt  time.Time  // when what is left for a later pass is ready; zero: nothing is left
	doomedAt time.Time  // when results were held back for status to say so first; zero: none was
}

// Of is what waits for a run. atOnce bounds the results to apply; 0: no bound. ahead: a decision is
// kept that has the effect of some.
func (b *Batches) Of(run *v1alpha1.WorkflowRun, atOnce int, ahead bool) *Batch {
	x := &Batch{all: b, run: run.UID}
	now := b.Clock.Now()
	for _, p := range b.Inbox.Waiting(run.UID) {
		if p.Exhausted != nil {
			x.doomed = append(x.doomed, p)
			continue
		}
		if !ahead {
			p.Kept = ""
		}
		if p.Kept != "" {
			x.kept = append(x.kept, p)
			continue
		}
		x.apply = append(x.apply, p)
	}
	if at := pacing.BatchReadyAt(x.Paced(), run); at.After(now) {
		x.apply, x.company, x.readyAt = nil, x.apply, at
	}
	if atOnce > 0 && atOnce < len(x.apply) {
		x.apply, x.readyAt = x.apply[:atOnce], now
	}
	return x
}

// Under notes the policy of the run.
func (x *Batch) Under(p policy.Effective) { x.policy = p }

// Empty says whether nothing is to be applied.
func (x *Batch) Empty() bool { return len(x.apply) == 0 }

// Waits says whether any wait, though it be for company.
func (x *Batch) Waits() bool { return len(x.apply)+len(x.company) > 0 }

// Len is how many are to be applied.
func (x *Batch) Len() int { return len(x.apply) }

// NextAt is when another pass is due for results that this one leaves; zero: it leaves none.
func (x *Batch) NextAt() time.Time { return pacing.Earliest(x.readyAt, x.doomedAt) }

// Bytes is what it takes of the memory to apply them: outputs that they refer to are read.
func (x *Batch) Bytes() (bytes int64) {
	for _, p := range x.apply {
		bytes += p.Bytes() + p.referred()
	}
	return bytes
}

// Paced is what pacing has to do with them.
func (x *Batch) Paced() []pacing.Waiting {
	list := make([]pacing.Waiting, 0, len(x.apply))
	for _, p := range x.apply {
		list = append(list, pacing.Waiting{
			Job: p.Fact.ID, Since: p.Since, Item: p.Fact.ID.Item != protocol.NoItem, Started: p.Fact.Result.Status == protocol.StatusStarted,
		})
	}
	return list
}

// Facts are the results to apply, as the core reads them.
func (x *Batch) Facts() []lifecycle.Result {
	var list []lifecycle.Result
	for _, p := range x.apply {
		list = append(list, p.Fact)
	}
	return list
}

// DeadLetters are results that are to be put aside, as the core reads them.
func (x *Batch) DeadLetters() []lifecycle.DeadLetter {
	list := make([]lifecycle.DeadLetter, 0, len(x.doomed))
	for _, p := range x.doomed {
		list = append(list, lifecycle.DeadLetter{
			ID: p.Fact.ID, Started: p.Fact.Result.Status == protocol.StatusStarted, Failures: p.Failures + 1, Cause: p.Exhausted.Err.Error(),
		})
	}
	return list
}

// DoomedFor says whether results are to be put aside, and all of them for such causes.
func (x *Batch) DoomedFor(such func(cause error) bool) bool {
	return len(x.doomed) > 0 && !slices.ContainsFunc(x.doomed, func(p *Pending) bool { return !such(p.Exhausted.Err) })
}

// TakeAll makes the results that wait for company count in this pass: it may write a time-out or a
// cancel, and after that they would have no effect, though they came before it.
func (x *Batch) TakeAll() {
	if len(x.company) > 0 {
		x.apply, x.company, x.readyAt = append(x.company, x.apply...), nil, time.Time{}
	}
}

// addFound adds what was found in the stream, but for what is about to be put aside: it was refused
// as often as it may be.
func (x *Batch) addFound(list []busresults.Answer, now time.Time) {
	for _, found := range list {
		if slices.ContainsFunc(x.doomed, func(p *Pending) bool {
			return p.Fact.ID == found.ID && p.Fact.Result.Status == found.Result.Status
		}) {
			continue
		}
		fact := lifecycle.Result{ID: found.ID, Result: found.Result, PublishedAt: found.PublishedAt}
		if found.Rejected != nil {
			fact.Rejected = found.Rejected.Error()
		}
		x.apply = append(x.apply, &Pending{Fact: fact, Since: now})
	}
}

// Carry notes the results whose effect is in a decision that is about to be written, and says how
// many they are.
func (x *Batch) Carry(verdicts []lifecycle.Verdict) {
	x.carried = nil
	for i, v := range verdicts {
		if v == lifecycle.Applied {
			x.carried = append(x.carried, x.apply[i])
		}
	}
}

// Carried are the results whose effect is in the write.
func (x *Batch) Carried() []*Pending { return x.carried }

// CarriesFound says whether what was found in the stream is in the write.
func (x *Batch) CarriesFound() bool {
	return slices.ContainsFunc(x.carried, func(p *Pending) bool { return p.Delivery == nil })
}

// TakenOver are the objects of items' workers whose bytes are with those of other items once a
// write is taken. A result may name any object, and is applied as a failure then: only one that
// belongs to its own job may be dropped.
func (x *Batch) TakenOver(verdicts []lifecycle.Verdict) (names []string) {
	for i, v := range verdicts {
		fact := &x.apply[i].Fact
		ref := fact.Result.OutputRef
		if v == lifecycle.Applied && fact.ID.Item != protocol.NoItem && ref != nil && ref.Check(fact.ID) == nil {
			names = append(names, ref.Name)
		}
	}
	return names
}

// Overdue gives a result back that has waited too long; nil: it has not.
type Overdue func(*Pending) *Settlement

// Settle settles the results on which the core has a final verdict; it says whether the run is to
// be read live because one is ahead of what is known. One that still is after that goes back to
// NATS: only a run that lost its past can be behind.
func (x *Batch) Settle(ctx context.Context, d lifecycle.Decision, overdue Overdue) (ahead bool) {
	var list []Settlement
	applied := 0
	for i, v := range d.Verdicts {
		p := x.apply[i]
		if v == lifecycle.Applied {
			applied++
			x.countApplied(p)
		}
		if p.Delivery == nil { // its delivery is settled as a duplicate, and says what else may have become of it
			if v == lifecycle.Applied {
				x.all.Settler.count.CountResult(busresults.OutcomeApplied)
			}
			continue
		}
		p.Fact.Rejected = cmp.Or(d.Rejected[i], p.Fact.Rejected)
		s, isAhead := x.verdict(p, v, overdue)
		ahead = ahead || isAhead
		if s != nil {
			list = append(list, *s)
		}
	}
	kept, n := x.settleKept()
	list, applied = append(list, kept...), applied+n
	if applied > 0 {
		x.all.PerWrite.Observe(float64(applied))
	}
	x.settle(ctx, list)
	return ahead
}

// countApplied counts the latency of a result that was applied. It began by the clock of NATS,
// which may be ahead of the one here: there is no latency below 0.
func (x *Batch) countApplied(p *Pending) {
	x.all.Applied(x.policy.Name, max(0, x.all.Clock.Since(p.Fact.PublishedAt)))
}

// verdict is what becomes of a result; nil: it stays.
func (x *Batch) verdict(p *Pending, v lifecycle.Verdict, overdue Overdue) (s *Settlement, ahead bool) {
	switch v {
	case lifecycle.Applied:
		return &Settlement{p, p.Rejection(), busresults.OutcomeApplied}, false
	case lifecycle.Duplicate:
		return &Settlement{p, p.Rejection(), busresults.OutcomeDuplicate}, false
	case lifecycle.Stale:
		return &Settlement{p, p.Rejection(), busresults.OutcomeStale}, false
	case lifecycle.Ahead:
		if p.Refreshed && x.journal {
			return x.awaitCause(p), false
		}
		if p.Refreshed {
			back := x.GiveBack(p, x.FailureWait(p.Failures), bus.ClassAhead, ErrAhead)
			return &back, false
		}
		p.Refreshed = true
		return nil, true
	case lifecycle.Waiting:
		return overdue(p), false
	}
	return nil, false
}

// settle settles results, but for those whose deliveries are used up: these wait until status says
// so. Whoever is the next leader would find neither job nor result of an attempt that is in flight,
// and give it to another worker.
func (x *Batch) settle(ctx context.Context, list []Settlement) {
	var now []Settlement
	for _, s := range list {
		dead, ok := errors.AsType[*busresults.PermanentError](s.As)
		if !ok || dead.Reason != deadletters.ReasonDeliveriesExhausted {
			now = append(now, s)
			continue
		}
		s.Pending.Exhausted, x.doomedAt = dead, x.all.Clock.Now()
	}
	x.all.Settler.SettleAll(ctx, x.run, now)
}

// Bury puts aside the results of which status says by now that they are. Where a dead letter cannot
// be stored, the result stays, and is delivered again.
func (x *Batch) Bury(ctx context.Context, d lifecycle.Decision) {
	if !d.Told {
		return
	}
	list := make([]Settlement, 0, len(x.doomed))
	for _, p := range x.doomed {
		list = append(list, Settlement{Pending: p, As: p.Exhausted})
	}
	x.all.Settler.SettleAll(ctx, x.run, list)
}
