// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	crowdTopic  = "ledger.crowd"
	crowdRuns   = 5
	crowdSteps  = 200
	partitions8 = protocol.Partitions / resultGroups // of one consumer
)

// TestPoisonInFrontOfAThousandGoodResultsChangesNothingForThem puts one message of each kind of
// poison before them, in the way of every consumer.
//
// mutation: a bus that handles poison where it receives messages, and waits there, makes this fail.
func TestPoisonInFrontOfAThousandGoodResultsChangesNothingForThem(t *testing.T) {
	c := newCrowd(t.Context(), t)
	without, with := c.measure(t.Context(), nil), c.measure(t.Context(), c.poison(t.Context()))
	t.Logf("1,000 results without poison: %s, behind it: %s", without, with)
	if bound := max(leastBound, tolerance*without); with > bound {
		t.Errorf("1,000 results behind poison took %s, more than %s", with, bound)
	}
}

// BenchmarkPoison measures the same, in turns.
func BenchmarkPoison(b *testing.B) {
	c := newCrowd(b.Context(), b)
	c.measure(b.Context(), nil) // connections, caches
	var without, with time.Duration
	for range b.N {
		w, p := c.measure(b.Context(), nil), c.measure(b.Context(), c.poison(b.Context()))
		c.w.note("1,000 results without poison: %s, behind it: %s", w, p)
		without, with = without+w, with+p
	}
	b.ReportMetric(float64(with)/float64(without), "ratio")
}

// crowd has 1,000 results ready.
type crowd struct {
	w     *world
	desk  *desk
	dead  uint64 // letters so far
	round int
	h     *book.History
}

func newCrowd(ctx context.Context, tb testing.TB) *crowd {
	tb.Helper()
	w := newWorld(ctx, tb)
	c := &crowd{w: w, h: w.follow(ctx, func(_, _ *v1alpha1.WorkflowRun, _ time.Time) {})}
	w.startOperator(ctx, "operator")
	c.desk = w.openDesk(ctx, crowdTopic)
	return c
}

// measure publishes 1,000 good results right behind the poison, and returns how long it takes until
// they are in status.
func (c *crowd) measure(ctx context.Context, poison []*nats.Msg) time.Duration {
	c.w.tb.Helper()
	c.round++
	c.w.create(ctx, numbered(fmt.Sprintf("crowd-%d", c.round), crowdRuns, parallelSteps(crowdTopic, crowdSteps)))
	messages := poison
	for _, j := range c.desk.take(ctx, c.w.tb, patience, crowdRuns*crowdSteps) {
		messages = append(messages, j.message(book.Success()))
	}
	begin := time.Now()
	c.w.publish(ctx, messages...)
	awaitFinished(ctx, c.w.tb, c.h, patience, c.round*crowdRuns)
	took := time.Since(begin).Round(time.Millisecond)
	c.w.expectSettled(ctx, patience)
	c.dead += uint64(len(poison))
	c.w.expectDeadLetters(ctx, c.dead)
	return took
}

// poison is one message of each kind for each consumer.
func (c *crowd) poison(ctx context.Context) []*nats.Msg {
	c.w.tb.Helper()
	keys := c.w.keys(ctx)
	var all []*nats.Msg
	for group := range resultGroups {
		id := protocol.JobID{RunUID: inPartition(group * partitions8), Step: book.StepName(0), Item: protocol.NoItem, Attempt: 1}
		forger := forged(keys, c.w.names, id)
		forger.Header.Del(protocol.HeaderToken)
		forger.Header.Set(protocol.HeaderMsgID, uuid.NewString())
		odd := forged(keys, c.w.names, id)
		odd.Subject += ".odd"
		odd.Header.Set(protocol.HeaderMsgID, uuid.NewString())
		garbled := forged(keys, c.w.names, id) // put aside once a live list says that there is no such run
		garbled.Data = []byte(`{"status":`)
		all = append(all, forger, odd, garbled)
	}
	return all
}

// inPartition draws the UID of a run that does not exist.
func inPartition(n int) string {
	for {
		if uid := uuid.NewString(); protocol.Partition(uid) == n {
			return uid
		}
	}
}
