// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// topic pulls the jobs of one topic.
//
// Invariant: at most as many jobs are asked for as there are free slots, so no job waits in this
// process while its AckWait runs out and another worker could do it.
type topic struct {
	*Worker
	name        string
	handler     Handler
	concurrency int

	limited       bool // to as many deliveries
	maxDeliveries int

	ackWait atomic.Int64 // nanoseconds, as the consumer says
	jobs    sync.WaitGroup
}

// run pulls until pulls ends, then waits for the jobs, whose contexts come from work.
func (t *topic) run(pulls, work context.Context) error {
	slots := make(chan struct{}, t.concurrency)
	defer t.jobs.Wait()
	for {
		consumer, err := t.bind(pulls)
		if consumer == nil {
			return err
		}
		stop := t.each(func() time.Duration { return refreshInterval }, func() { t.refresh(pulls) })
		for err == nil && pulls.Err() == nil {
			err = t.pull(pulls, work, slots)
		}
		stop()
		if pulls.Err() != nil {
			return nil
		}
		t.log.Info("Pull ended, binding again", "topic", t.name, "cause", err.Error())
		t.sleep(pulls, t.jittered(t.options.BindInterval))
	}
}

// bind waits for the topic's durable, which the operator makes. It gives nil when ctx ended,
// or with ErrConnectionClosed. A fleet whose topic has none asks less and less often.
func (t *topic) bind(ctx context.Context) (jetstream.Consumer, error) {
	said, wait := "", t.options.BindInterval
	for ctx.Err() == nil {
		c, err := t.consumer(ctx)
		switch {
		case err == nil:
			t.log.Info("Taking jobs", "topic", t.name, "concurrency", t.concurrency)
			return c, nil
		case t.nc.IsClosed():
			return nil, fmt.Errorf("topic %s: %w", t.name, ErrConnectionClosed)
		case ctx.Err() == nil:
			said = t.tellWait(said, err)
		}
		t.sleep(ctx, min(t.jittered(wait), max(t.jittered(t.options.BindInterval), bindCeiling)))
		wait = t.nextWait(wait, err)
	}
	return nil, nil
}

// consumer asks for the topic's durable.
func (t *topic) consumer(ctx context.Context) (jetstream.Consumer, error) {
	c, err := t.js.Consumer(ctx, t.names.JobsStream(), protocol.Durable(t.name))
	if err != nil {
		return nil, err
	}
	t.ackWait.Store(int64(c.CachedInfo().Config.AckWait))
	return c, nil
}

// nextWait is how long bind waits after it has waited that long, and was told this.
func (t *topic) nextWait(wait time.Duration, told error) time.Duration {
	if errors.Is(told, jetstream.ErrConsumerNotFound) || errors.Is(told, jetstream.ErrStreamNotFound) {
		return min(2*wait, max(t.options.BindInterval, bindCeiling))
	}
	return t.options.BindInterval
}

// refresh reads the consumer's AckWait once more: who lowers it restarts no worker. Of what it
// cannot read the next pull tells.
func (t *topic) refresh(ctx context.Context) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	if _, err := t.consumer(ctx); err != nil {
		t.log.V(1).Info("Consumer not read again", "topic", t.name, "cause", err.Error())
	}
}

// patience is how long the server waits for a word of a job.
func (t *topic) patience() time.Duration {
	return cmp.Or(time.Duration(t.ackWait.Load()), defaultAckWait)
}

// pingEvery is how often the server is told that a job is under way. A long AckWait may be lowered,
// and counts at once: the last word is to be no older than what workers need to read it.
func (t *topic) pingEvery() time.Duration { return min(t.patience()/3, refreshInterval) }

// tellWait says why bind waits, unless that was said before, and gives what was said.
func (t *topic) tellWait(before string, err error) string {
	connected := t.nc.IsConnected()
	cause := err.Error()
	// A request that a permission is missing for has no answer, either.
	if last := t.nc.LastError(); last != nil && (!connected || errors.Is(err, context.DeadlineExceeded)) {
		cause += ": " + last.Error()
	}
	said := fmt.Sprint(connected, cause)
	switch {
	case said == before:
	case connected:
		t.log.Info("Waiting for the operator to make the topic's consumer", "topic", t.name, "cause", cause)
	default:
		t.log.Info("NATS is not reached", "topic", t.name, "servers", t.nc.Servers(), "cause", cause) // without the user
	}
	return said
}

// pull asks once for as many jobs as there are free slots, and starts them. Jobs that come after
// ctx ended go back when the request is over: before, the server would hand them to the same
// request again and again, and each delivery counts. The request is not broken off, because what
// the server sent in that moment would be lost until AckWait.
func (t *topic) pull(ctx, work context.Context, slots chan struct{}) error {
	n := take(ctx, slots)
	defer func() { give(slots, n) }()
	if n == 0 {
		return nil
	}
	var late []*nats.Msg
	err := t.fetch(ctx, n, t.patience(), func(msg *nats.Msg) {
		if ctx.Err() != nil {
			if !t.joins(msg) {
				late = append(late, msg)
			}
			return
		}
		n-- // the slot is the job's now
		t.jobs.Go(func() {
			defer give(slots, 1)
			t.process(work, msg)
		})
	})
	for _, msg := range late {
		t.giveBack(msg)
	}
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	return nil
}

// take waits for a free slot and takes all that are free; 0 when ctx ended.
func take(ctx context.Context, slots chan struct{}) int {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	n := 1
	for {
		select {
		case slots <- struct{}{}:
			n++
		default:
			return n
		}
	}
}

func give(slots chan struct{}, n int) {
	for range n {
		<-slots
	}
}
