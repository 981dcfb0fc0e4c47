// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// deskBatch is how many jobs the desk takes at a time.
const deskBatch = 200

// deskPull is how long a desk waits for a job that is not there.
const deskPull = 2 * time.Second

// desk takes the jobs of a topic, and answers none before the test says so.
type desk struct {
	w     *world
	topic string

	mu   sync.Mutex
	jobs []deskJob // that were not handed to the test yet
}

// deskJob is a job that waits for its answer.
type deskJob struct {
	id           protocol.JobID
	reply, token string
	run          string // name
}

// openDesk opens a desk for the time of the test.
func (w *world) openDesk(ctx context.Context, topic string) *desk {
	ctx, leave := context.WithCancel(ctx)
	d := &desk{w: w, topic: topic}
	var working sync.WaitGroup
	working.Go(func() {
		for ctx.Err() == nil {
			consumer, err := w.js.Consumer(ctx, w.names.JobsStream(), protocol.Durable(topic))
			for err == nil && ctx.Err() == nil {
				err = d.pull(consumer)
			}
			linger(ctx, look)
		}
	})
	w.tb.Cleanup(func() {
		leave()
		working.Wait()
	})
	return d
}

// pull acknowledges jobs at once, which no worker may do: the operator of these tests never dies,
// and nobody is to get them again.
func (d *desk) pull(consumer jetstream.Consumer) error {
	batch, err := consumer.Fetch(deskBatch, jetstream.FetchMaxWait(deskPull))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		h := msg.Headers()
		id, err := protocol.ParseJobID(h.Get(protocol.HeaderMsgID))
		if err != nil {
			return err
		}
		if err := msg.Ack(); err != nil {
			return err
		}
		d.mu.Lock()
		d.jobs = append(d.jobs, deskJob{
			id: id, reply: h.Get(protocol.HeaderReply), token: h.Get(protocol.HeaderToken), run: book.RunOf(h.Get(protocol.HeaderCESource)),
		})
		d.mu.Unlock()
	}
	return batch.Error()
}

// take waits for jobs and hands them out, in order of their ids.
func (d *desk) take(ctx context.Context, tb testing.TB, patience time.Duration, n int) []deskJob {
	tb.Helper()
	await(ctx, tb, patience, fmt.Sprintf("%d jobs of %s come", n, d.topic), func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.jobs) < n {
			return fmt.Sprintf("%d came", len(d.jobs))
		}
		return ""
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := slices.Clone(d.jobs[:n])
	d.jobs = slices.Delete(d.jobs, 0, n)
	return taken
}

// message is a result of the job as the protocol wants it.
func (j deskJob) message(body []byte) *nats.Msg {
	m := nats.NewMsg(j.reply)
	m.Data = body
	m.Header.Set(protocol.HeaderMsgID, protocol.ResultMsgID(j.id, j.token))
	m.Header.Set(protocol.HeaderToken, j.token)
	return m
}

// started is what a worker says before it begins.
func (j deskJob) started() *nats.Msg {
	m := j.message([]byte(`{"status":"Started"}`))
	m.Header.Set(protocol.HeaderMsgID, protocol.StartedMsgID(j.id, j.token))
	return m
}

// publish publishes results at once and waits until all are confirmed.
func (w *world) publish(ctx context.Context, messages ...*nats.Msg) {
	w.tb.Helper()
	pending := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		var err error
		if pending[i], err = w.js.PublishMsgAsync(m); err != nil {
			w.tb.Fatal(err)
		}
	}
	for _, f := range pending {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			w.tb.Fatal(err)
		case <-ctx.Done():
			w.tb.Fatal(ctx.Err())
		}
	}
}
