// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// GiveBack returns a result to NATS; once it has failed as often as the policy lets it, to
// the dead letters.
func (x *Batch) GiveBack(p *Pending, wait time.Duration, class string, cause error) Settlement {
	return giveBack(p, wait, class, cause, x.policy.Delivery.MaxDeliveries)
}

func giveBack(p *Pending, wait time.Duration, class string, cause error, budget int) Settlement {
	if busresults.CountsAsFailure(class) && p.Failures+1 >= budget {
		return Settlement{Pending: p, As: busresults.Permanent(deadletters.ReasonDeliveriesExhausted, cause)}
	}
	return Settlement{Pending: p, As: &RetryError{After: wait, Class: class, Cause: cause}}
}

// Refuse gives back the one result that the API server refused; to the dead letters once as many of
// its deliveries failed as the budget has.
func (x *Batch) Refuse(ctx context.Context, p *Pending, cause error, budget int) {
	x.settle(ctx, []Settlement{giveBack(p, x.FailureWait(p.Failures), bus.ClassPublishFailed, cause, budget)})
}

// FailureWait is the wait before a result that failed is delivered again.
func (x *Batch) FailureWait(failures int) time.Duration {
	limit := x.policy.Delivery.MaxDelay
	return min(policy.BusyRetry{Delay: pacing.Refused(failures, limit), JitterPercent: jitterPercent}.Wait(x.all.Spread()), limit)
}

// HandBack returns results that have waited for so long to NATS, each with a wait of its own:
// another replica may be able to apply them.
func (x *Batch) HandBack(ctx context.Context, patience time.Duration, class string, cause error, wait func() time.Duration) {
	var list []Settlement
	for _, p := range x.all.Inbox.Waiting(x.run) {
		if x.all.Clock.Since(p.Since) >= patience {
			list = append(list, x.GiveBack(p, wait(), class, cause))
		}
	}
	x.settle(ctx, list)
}

// HandBackAll returns all results to NATS, where they wait for so long, and longer if many of
// their namespace do.
func (x *Batch) HandBackAll(ctx context.Context, namespace, class string, cause error, wait func() time.Duration) {
	var list []Settlement
	for _, p := range x.all.Inbox.Waiting(x.run) {
		after := wait() + x.all.Inbox.ReturnAfter(namespace, p, x.all.Clock.Now())
		list = append(list, Settlement{Pending: p, As: &RetryError{After: after, Class: class, Cause: cause}})
	}
	x.all.Settler.SettleAll(ctx, x.run, list)
}

// PatienceEnds is when the first of the results that wait has waited for so long; zero: none waits.
func (x *Batch) PatienceEnds(patience time.Duration) (first time.Time) {
	for _, p := range x.all.Inbox.Waiting(x.run) {
		first = pacing.Earliest(first, p.Since.Add(patience))
	}
	return first
}
