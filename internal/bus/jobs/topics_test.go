// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/nats-io/nats-server/v2/server"
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
	if topics := info.State.Consumers - 1; refused != 3 || topics != 3 || info.State.Msgs != 3 { // one is of fences
		t.Errorf("%d topics refused, %d consumers and %d jobs, want 3 of each", refused, topics, info.State.Msgs)
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

// mutation: an error of the server that is left as it is makes this fail.
func TestALimitOfTheServerIsOneOfTopics(t *testing.T) {
	b := newQueue(t, natstest.Start(t, func(o *server.Options) { o.JetStreamLimits.DefaultMaxConsumers = 3 }))
	publish(t, b, jobOf("first", 0)) // and the consumer of fences
	publish(t, b, jobOf("second", 1))
	err := b.Publish(t.Context(), jobOf("third", 2))
	if n := testutil.ToFloat64(b.metrics.topicsRefused); !errors.Is(err, ErrTooManyTopics) || n != 1 {
		t.Errorf("refused with %v, counted %v", err, n)
	}
}

// A run may have thousands of jobs of a topic for which there is no room, each of which is tried.
//
// mutations: ensure that remembers no refusal, or remembers it for good, makes this fail.
func TestATopicThatWasRefusedIsNotAskedForWithEachJob(t *testing.T) {
	b := newQueue(t, natstest.Start(t), func(c *config) { c.MaxTopics = 1 })
	publish(t, b, jobOf("first", 0))
	requests := make(chan *nats.Msg, 10_000)
	spy, err := b.conn.NATS.ChanSubscribe("$JS.API.>", requests)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = spy.Unsubscribe() })
	var group sync.WaitGroup
	for n := range 100 {
		group.Go(func() {
			err := b.Publish(t.Context(), jobOf("second", n))
			retry, ok := errors.AsType[*bus.RetryError](err)
			if !errors.Is(err, ErrTooManyTopics) || !ok || retry.Delay < refusalHolds/2 {
				t.Errorf("refused with %v, to be tried again after %v", err, retry)
			}
		})
	}
	group.Wait()
	if err := b.conn.NATS.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := len(requests); n == 0 || n > 3 {
		t.Errorf("%d requests", n)
	}
	if err := b.conn.JetStream.DeleteConsumer(t.Context(), b.conn.Names.JobsStream(), protocol.Durable("first")); err != nil {
		t.Fatal(err)
	}
	known := b.topics.get("second")
	known.refusedAt = known.refusedAt.Add(-refusalHolds)
	publish(t, b, jobOf("second", 1))
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

// boundOf is how many jobs of a topic may be with workers.
func boundOf(t *testing.T, q *Queue, topic string) int {
	t.Helper()
	c, err := q.conn.JetStream.Consumer(t.Context(), q.conn.Names.JobsStream(), protocol.Durable(topic))
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().Config.MaxAckPending
}

// An operator that starts with a higher --nats-max-ack-pending gives it to the topics that there
// are, while workers pull, and one with a lower takes nothing away.
//
// mutations: consumer without raised; RaiseBound without the mark; one that makes the consumer anew
// (the job is given out again); RaiseBound that lowers.
func TestATopicGetsAHigherBoundThatIsConfiguredLater(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	bound := func(n int) func(*config) { return func(c *config) { c.MaxAckPending = n } }
	a := newQueue(t, s, bound(1))
	publish(t, a, testJob(1))
	publish(t, a, testJob(2))
	topic := testJob(1).Topic
	first := bustest.Take(t, a.conn, topic)
	next := make(chan *nats.Msg, 2)
	inbox := a.conn.NATS.NewInbox()
	sub, err := a.conn.NATS.ChanSubscribe(inbox, next)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	request := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, time.Hour)
	pull := "$JS.API.CONSUMER.MSG.NEXT." + a.conn.Names.JobsStream() + "." + protocol.Durable(topic)
	if err := a.conn.NATS.PublishRequest(pull, inbox, request); err != nil {
		t.Fatal(err)
	}
	bustest.Eventually(t, "a worker pulls in vain", func() bool {
		w, err := a.Workers(t.Context(), topic)
		return err == nil && w.Pulling == 1 && w.Busy == 1 && w.Queued == 1
	})

	b := newQueue(t, s, bound(5))
	publish(t, b, testJob(3))
	if n := boundOf(t, b, topic); n != 5 {
		t.Errorf("a higher bound: %d, want 5", n)
	}
	if got := bustest.Receive(t, "the pull that waited gets a job", next, 1)[0]; got.Subject != a.conn.Names.Job(topic, testJob(2).ID) {
		t.Errorf("it gets %s", got.Subject)
	}
	if err := first.DoubleAck(t.Context()); err != nil {
		t.Errorf("the job that was out before: %v", err)
	}
	a.topics.forget() // as after a restart of the operator
	publish(t, a, testJob(4))
	if n := boundOf(t, a, topic); n != 5 {
		t.Errorf("a lower bound: %d, want 5", n)
	}
	publish(t, newQueue(t, s, bound(7)), testJob(5))
	if n := boundOf(t, a, topic); n != 7 {
		t.Errorf("a bound that was raised before: %d, want 7", n)
	}
}

// setBound changes how many jobs of a topic may be with workers, as `nats consumer edit` does, and
// makes it a consumer of earlier versions if it says no more who set the bound.
func setBound(t *testing.T, q *Queue, topic string, n int, marked bool) {
	t.Helper()
	stream := q.conn.Names.JobsStream()
	c, err := q.conn.JetStream.Consumer(t.Context(), stream, protocol.Durable(topic))
	if err != nil {
		t.Fatal(err)
	}
	edited := c.CachedInfo().Config
	edited.MaxAckPending = n
	if !marked {
		edited.Metadata = nil
	}
	if _, err := q.conn.JetStream.UpdateConsumer(t.Context(), stream, edited); err != nil {
		t.Fatal(err)
	}
}

// A backend that breaks under more has a bound that somebody chose for it.
//
// mutations: raised that raises whatever is lower, or only what is marked; a bound that is raised
// without its mark.
func TestABoundThatSomebodyChoseForATopicIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		made, edited int
		marked       bool
		now, want    int
	}{
		"lowered by hand":                        {10, 1, true, 10, 1},
		"lowered by hand, and the flag is more":  {10, 1, true, 20, 1},
		"raised by hand, and the flag is more":   {10, 15, true, 20, 15},
		"of earlier versions, by their default":  {10, 10_000, false, 20_000, 20_000},
		"of earlier versions, by whom is unsaid": {10, 20, false, 10_000, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			made := newQueue(t, s, func(o *config) { o.MaxAckPending = c.made })
			publish(t, made, testJob(1))
			setBound(t, made, testJob(1).Topic, c.edited, c.marked)
			var told atomic.Int64
			now := newQueue(t, s, func(o *config) {
				o.MaxAckPending = c.now
				o.Log = funcr.New(func(_, args string) {
					if strings.Contains(args, "differs from the configuration") && strings.Contains(args, "max_ack_pending") {
						told.Add(1)
					}
				}, funcr.Options{})
			})
			publish(t, now, testJob(2))
			if n := boundOf(t, now, testJob(1).Topic); n != c.want || (told.Load() > 0) != (n != c.now) {
				t.Errorf("the bound is %d, want %d, and that was told %d times", n, c.want, told.Load())
			}
		})
	}
}

// mutations: a refusal that fails the publish, and raised that asks again.
func TestATopicThatMayNotHaveTheBoundWorksAsItIs(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a := newQueue(t, s, func(c *config) { c.MaxAckPending = 1 })
	publish(t, a, testJob(1))
	limited := bustest.Info(t, a.conn, a.conn.Names.JobsStream()).Config
	limited.ConsumerLimits.MaxAckPending = 2
	if _, err := a.conn.JetStream.UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	var told atomic.Int64
	b := newQueue(t, s, func(c *config) {
		c.MaxAckPending = 5
		c.Log = funcr.New(func(_, args string) {
			if strings.Contains(args, "keeps its bound") {
				told.Add(1)
			}
		}, funcr.Options{})
	})
	publish(t, b, testJob(2))
	b.topics.forget()
	publish(t, b, testJob(3))
	if n := boundOf(t, b, testJob(1).Topic); n != 1 || told.Load() != 1 {
		t.Errorf("the bound is %d, and that was told %d times", n, told.Load())
	}
}
