// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
)

// settleParallel bounds the results of one run that are settled at the same time.
const settleParallel = 64

// RetryError says after which time to try again, and why: the retry contract of internal/bus.
type RetryError struct {
	After time.Duration
	Class string
	Cause error
}

func (e *RetryError) Error() string { return fmt.Sprintf("again in %s: %s", e.After, e.Cause) }
func (e *RetryError) Unwrap() error { return e.Cause }

// RetryDelay implements the retry contract.
func (e *RetryError) RetryDelay() time.Duration { return e.After }

// RetryClass implements the retry contract.
func (e *RetryError) RetryClass() string { return e.Class }

// RetryDelay is the delay that an error asks for; else the default.
func RetryDelay(err error, otherwise time.Duration) time.Duration {
	if wait := AsksFor(err); wait > 0 {
		return wait
	}
	return otherwise
}

// AsksFor is the delay that an error asks for; 0: it asks for none.
func AsksFor(err error) time.Duration {
	var r interface{ RetryDelay() time.Duration }
	if errors.As(err, &r) {
		return max(r.RetryDelay(), 0)
	}
	return 0
}

// counter counts results by what became of them; *bus.Metrics does.
type counter interface{ CountResult(outcome string) }

// Settler acks results, or gives them back to NATS.
type Settler struct {
	inbox *Inbox
	count counter
}

// NewSettler makes a settler of what waits in an inbox.
func NewSettler(inbox *Inbox, count counter) *Settler { return &Settler{inbox: inbox, count: count} }

// Settlement is what becomes of one result: nil acks it, and Outcome "" counts nothing.
type Settlement struct {
	Pending *Pending
	As      error
	Outcome string
}

// Settle acks a result or hands it back. A failure is only logged: the message is then delivered
// again and is recognised.
func (s *Settler) Settle(ctx context.Context, p *Pending, as error, outcome string) {
	if outcome != "" {
		s.count.CountResult(outcome)
		log.FromContext(ctx).V(1).Info("Result settled", "job", p.Fact.ID.String(), "status", p.Fact.Result.Status, "outcome", outcome)
	}
	if err := p.Delivery.Settle(ctx, as); err != nil {
		log.FromContext(ctx).V(1).Info("Result could not be settled and will come again", "job", p.Fact.ID.String(), "error", err.Error())
	}
}

// SettleAll settles results of a run and takes them out of its inbox.
func (s *Settler) SettleAll(ctx context.Context, run types.UID, list []Settlement) {
	s.settleAll(ctx, list)
	done := make([]*Pending, 0, len(list))
	for _, one := range list {
		done = append(done, one.Pending)
	}
	s.inbox.Remove(run, done)
}

// settleAll settles several results at a time: each waits for the server's word, and a server that
// hangs must not keep a run for the sum of their time-outs.
func (s *Settler) settleAll(ctx context.Context, list []Settlement) {
	var group errgroup.Group
	group.SetLimit(settleParallel)
	for _, one := range list {
		group.Go(func() error {
			s.Settle(ctx, one.Pending, one.As, one.Outcome)
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// Gone settles all that waits for a run that is deleted.
func (s *Settler) Gone(ctx context.Context, run types.UID) {
	s.settleAll(ctx, stale(s.inbox.TakeAll(run)))
}

// stale is what becomes of results of a run that is gone.
func stale(list []*Pending) []Settlement {
	all := make([]Settlement, 0, len(list))
	for _, p := range list {
		all = append(all, Settlement{p, p.Rejection(), busresults.OutcomeStale})
	}
	return all
}
