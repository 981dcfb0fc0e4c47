// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

	jobs sync.WaitGroup
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
		for err == nil && pulls.Err() == nil {
			err = t.pull(pulls, work, consumer, slots)
		}
		if pulls.Err() != nil {
			return nil
		}
		t.log.Info("Pull ended, binding again", "topic", t.name, "cause", err.Error())
		t.sleep(pulls, t.jittered(t.options.BindInterval))
	}
}

// bind waits for the topic's durable, which the operator makes. It gives nil when ctx ended,
// or with ErrConnectionClosed.
func (t *topic) bind(ctx context.Context) (jetstream.Consumer, error) {
	said := ""
	for ctx.Err() == nil {
		c, err := t.js.Consumer(ctx, t.names.JobsStream(), protocol.Durable(t.name))
		switch {
		case err == nil:
			t.log.Info("Taking jobs", "topic", t.name, "concurrency", t.concurrency)
			return c, nil
		case t.nc.IsClosed():
			return nil, fmt.Errorf("topic %s: %w", t.name, ErrConnectionClosed)
		case ctx.Err() == nil:
			said = t.tellWait(said, err)
		}
		t.sleep(ctx, t.jittered(t.options.BindInterval))
	}
	return nil, nil
}

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
func (t *topic) pull(ctx, work context.Context, c jetstream.Consumer, slots chan struct{}) error {
	n := take(ctx, slots)
	defer func() { give(slots, n) }()
	if n == 0 {
		return nil
	}
	ackWait := c.CachedInfo().Config.AckWait
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(t.pullWait))
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	var late []jetstream.Msg
	for msg := range batch.Messages() {
		if ctx.Err() != nil {
			if !t.joins(msg) {
				late = append(late, msg)
			}
			continue
		}
		n-- // the slot is the job's now
		t.jobs.Go(func() {
			defer give(slots, 1)
			t.process(work, msg, ackWait)
		})
	}
	for _, msg := range late {
		t.giveBack(msg)
	}
	if err := batch.Error(); err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
		return fmt.Errorf("pull: %w", err)
	}
	if !t.nc.IsConnected() { // the library has kept the request for later, and says nothing
		return fmt.Errorf("pull: %w", nats.ErrDisconnected)
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
