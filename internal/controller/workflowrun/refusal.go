package workflowrun

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// tooLarge says that the API server, or etcd behind it, has no room for an object. etcd's answer comes as an internal error.
func tooLarge(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Status().Message
	return answer.Status().Code == http.StatusRequestEntityTooLarge || strings.Contains(text, "etcdserver: request is too large") ||
		(strings.Contains(text, "code = ResourceExhausted") && strings.Contains(text, "larger than max"))
}

// outage says that an error of the API server is no word on what was to be written: nobody answered, or not now.
func outage(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	if tooLarge(err) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return code < http.StatusBadRequest || code >= http.StatusInternalServerError
	}
}

// unwritten ends a pass whose write the API server did not take, for a reason that may last. In an outage results go back to
// NATS when their patience is over, and none is to blame. A refusal may be for one of the results in the write: half of them are
// tried at a time, until one is refused alone; only that one counts as failed, and the others do not wait for it.
func (p *pass) unwritten(ctx context.Context, cause error) (reconcile.Result, error) {
	switch n := len(p.carried); {
	case tooLarge(cause) && (n == 0 || p.ending):
		return p.shrink(ctx, cause), nil
	case n == 0 || outage(cause):
		p.handBack(ctx, bus.ClassStoreUnavailable, cause)
		return reconcile.Result{}, cause
	case p.foundRefused(cause):
		log.FromContext(ctx).Info("A write with results that were not delivered is refused: they wait", "results", n, "cause", cause.Error())
	case n > 1:
		p.mem.atOnce, p.mem.blamed = n/2, false
		log.FromContext(ctx).Info("A write with several results is refused: fewer at a time", "results", n, "next", p.mem.atOnce, "cause", cause.Error())
	default:
		p.mem.atOnce, p.mem.blamed = 1, true // until a write is taken: it may be that all are refused
		l := p.carried[0]
		log.FromContext(ctx).Error(cause, "A result is refused", "job", l.Fact.ID.String(), "failures", l.Failures+1, "budget", p.policy.Delivery.MaxDeliveries)
		p.settleEach(ctx, []results.Settlement{p.giveBack(l, p.failureWait(l.Failures), bus.ClassPublishFailed, cause)})
	}
	return p.again(p.mem.lastWrite.Next(0, false)), nil
}

// carried are the results whose effect is in a decision.
func carried(letters []*results.Pending, verdicts []lifecycle.Verdict) []*results.Pending {
	var in []*results.Pending
	for i, v := range verdicts {
		if v == lifecycle.Applied {
			in = append(in, letters[i])
		}
	}
	return in
}

// giveBack returns a result to NATS; once it has failed as often as the policy lets it, to the dead letters.
func (p *pass) giveBack(l *results.Pending, wait time.Duration, class string, cause error) results.Settlement {
	if busresults.CountsAsFailure(class) && l.Failures+1 >= p.policy.Delivery.MaxDeliveries {
		return results.Settlement{Pending: l, As: busresults.Permanent(deadletters.ReasonDeliveriesExhausted, cause)}
	}
	return results.Settlement{Pending: l, As: &results.RetryError{After: wait, Class: class, Cause: cause}}
}

// failureWait is the wait before a result that failed comes again. It grows, so that a refusal which ends after some minutes
// does not use up the budget of all that came meanwhile.
func (p *pass) failureWait(failures int) time.Duration {
	limit := p.policy.Delivery.MaxDelay
	wait := pacing.Refused(failures, limit)
	return min(policy.BusyRetry{Delay: wait, JitterPercent: storeJitterPercent}.Wait(p.spread()), limit)
}

// hold keeps back the results whose deliveries are used up: status says so first. Whoever is the next leader would find neither job nor
// result of an attempt that is in flight, and give it to another worker.
func (p *pass) hold(list []results.Settlement) (others []results.Settlement) {
	for _, s := range list {
		dead, ok := errors.AsType[*busresults.PermanentError](s.As)
		if !ok || dead.Reason != deadletters.ReasonDeliveriesExhausted {
			others = append(others, s)
			continue
		}
		s.Pending.Exhausted, p.later = dead, p.clock.Now()
	}
	return others
}

// bury puts aside the results of which status says by now that they are. Where a dead letter cannot be stored, the result stays, and
// comes again.
func (p *pass) bury(ctx context.Context, d lifecycle.Decision) {
	if !d.Told {
		return
	}
	list := make([]results.Settlement, 0, len(p.doomed))
	for _, l := range p.doomed {
		list = append(list, results.Settlement{Pending: l, As: l.Exhausted})
	}
	p.settler.SettleAll(ctx, p.run.UID, list)
}

// apart tells results that are to be put aside from those to be applied.
func apart(waiting []*results.Pending) (rest, doomed []*results.Pending) {
	for _, l := range waiting {
		if l.Exhausted != nil {
			doomed = append(doomed, l)
			continue
		}
		rest = append(rest, l)
	}
	return rest, doomed
}

// deadLetters are results that are to be put aside, as the core knows them.
func deadLetters(doomed []*results.Pending) []lifecycle.DeadLetter {
	list := make([]lifecycle.DeadLetter, 0, len(doomed))
	for _, l := range doomed {
		list = append(list, lifecycle.DeadLetter{
			ID: l.Fact.ID, Started: l.Fact.Result.Status == protocol.StatusStarted, Failures: l.Failures + 1, Cause: l.Exhausted.Err.Error(),
		})
	}
	return list
}
