// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func jobOf(topic string, n int) Job {
	j := testJob(n)
	j.Topic = topic
	return j
}

// Everybody who may write a step may name a topic, and each one was a durable consumer.
//
// mutations: no bound, or one that refuses topics that are there already, makes this fail.
func TestTopicsAreBounded(t *testing.T) {
	b := newQueue(t, natstest.Start(t), func(c *config) { c.MaxTopics = 3 })
	refused := 0
	for n := range 6 {
		switch err := b.Publish(t.Context(), jobOf(fmt.Sprint("made.up-", n), n)); {
		case errors.Is(err, ErrTooManyTopics):
			if retry, ok := errors.AsType[*bus.RetryError](err); !ok || retry.Delay <= 0 {
				t.Errorf("does not say when to retry: %v", err)
			}
			refused++
		case err != nil:
			t.Fatal(err)
		}
	}
	info := bustest.Info(t, b.conn, b.conn.Names.JobsStream())
	if refused != 3 || info.State.Consumers != 3 || info.State.Msgs != 3 {
		t.Errorf("%d topics refused, %d consumers and %d jobs, want 3 of each", refused, info.State.Consumers, info.State.Msgs)
	}
	b.topics.forget() // as after a restart of the operator
	if err := b.Publish(t.Context(), jobOf("made.up-0", 10)); err != nil {
		t.Errorf("a topic that is there: %v", err)
	}
	if err := b.conn.JetStream.DeleteConsumer(t.Context(), b.conn.Names.JobsStream(), b.topics.config("made.up-1").Durable); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), jobOf("made.up-5", 5)); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	if n := testutil.ToFloat64(b.metrics.topicsRefused); n != 3 {
		t.Errorf("counted %v", n)
	}
}

// The operator looks at the consumers of topics whose jobs wait every few seconds. That must not
// keep those alive that nobody pulls from.
//
// mutation: Workers that binds to the consumer by creating it makes this fail.
func TestALookDoesNotKeepATopicAlive(t *testing.T) {
	b := newQueue(t, natstest.Start(t), func(c *config) { c.TopicInactivity = 4 * time.Second })
	if err := b.Publish(t.Context(), testJob(1)); err != nil {
		t.Fatal(err)
	}
	if w, err := b.Workers(t.Context(), "web.fetch"); err != nil || !w.Exists {
		t.Fatalf("%+v, %v", w, err)
	}
	bustest.Eventually(t, "the consumer is gone, though it is looked at every 10 ms", func() bool {
		w, err := b.Workers(t.Context(), "web.fetch")
		return err == nil && !w.Exists
	})
}

// A process of a worker has several pulls at the server while it is idle. mutation: the server's
// own bound makes this fail.
func TestManyIdleWorkersOfATopicAreServed(t *testing.T) {
	t.Parallel()
	const pulls = 600 // more than the server lets wait of itself
	b := newQueue(t, natstest.Start(t))
	j := testJob(1)
	publish(t, b, j)
	bustest.Take(t, b.conn, j.Topic)
	refused := make(chan *nats.Msg, pulls)
	inbox := b.conn.NATS.NewInbox()
	sub, err := b.conn.NATS.ChanSubscribe(inbox, refused)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	for range pulls {
		request := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, time.Minute)
		if err := b.conn.NATS.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+b.conn.Names.JobsStream()+"."+protocol.Durable(j.Topic), inbox, request); err != nil {
			t.Fatal(err)
		}
	}
	bustest.Eventually(t, "all pulls wait, or are refused", func() bool {
		c, err := b.conn.JetStream.Consumer(t.Context(), b.conn.Names.JobsStream(), protocol.Durable(j.Topic))
		return err == nil && c.CachedInfo().NumWaiting+len(refused) == pulls
	})
	if len(refused) > 0 {
		t.Errorf("%d are refused: %v", len(refused), (<-refused).Header)
	}
}
