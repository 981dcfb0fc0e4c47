// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// NATS takes an ack of a message that its consumer never had, if its sequence is below what the
// consumer has had, and deletes the message if no other consumer is to have it.
//
// mutation: Fence without a consumer of fences makes this fail.
func TestAConfinedWorkerCannotEraseFences(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, conn, q, _ := twoTopics(t, names)
	fenced := Job{ID: bustest.JobID(2), Topic: theirs, Fence: 1}
	epoch, err := q.Fence(t.Context(), fenced)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Publish(t.Context(), Job{ID: bustest.JobID(3), Topic: mine}); err != nil {
		t.Fatal(err)
	}
	nc := dial(t, s, "worker", mineInbox)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), names.JobsStream(), protocol.Durable(mine))
	if err != nil {
		t.Fatal(err)
	}
	var last jetstream.Msg
	for range 2 {
		if last, err = c.Next(jetstream.FetchMaxWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for seq := range epoch + 1 {
		if err := nc.Publish(fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.1.0", names.JobsStream(), protocol.Durable(mine), seq), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := last.DoubleAck(t.Context()); err != nil { // the server takes them in order
		t.Fatal(err)
	}
	for _, subject := range []string{names.Fence(theirs, fenced.ID), names.Job(theirs, bustest.JobID(1))} {
		if m, err := conn.Read(t.Context(), names.JobsStream(), bus.Query{LastFor: subject}); err != nil || m == nil {
			t.Errorf("%s is %v, %v", subject, m, err)
		}
	}
	if outcome, err := q.Recover(t.Context(), Job{ID: fenced.ID, Topic: theirs, Fence: 1, Epoch: epoch}); err != nil || outcome != Published {
		t.Errorf("it is recovered as %v, %v", outcome, err)
	}
}

// mutations: keepFences that remembers over the loss of the stream, or fails where NATS refuses.
func TestTheConsumerOfFencesIsMadeWhereverItCanBe(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	q := newQueue(t, natstest.Start(t))
	stream, there := names.JobsStream(), func() bool {
		_, err := q.conn.JetStream.Consumer(t.Context(), names.JobsStream(), fences)
		return err == nil
	}
	fence := func(n int) {
		t.Helper()
		if _, err := q.Fence(t.Context(), testJob(n)); err != nil {
			t.Error(err)
		}
	}
	if fence(1); !there() {
		t.Error("it is not made")
	}
	if err := q.conn.JetStream.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if fence(2); !there() {
		t.Error("it is not made again with its stream")
	}
	limited := newQueue(t, natstest.Start(t, func(o *server.Options) { o.JetStreamLimits.DefaultMaxConsumers = 1 }))
	if _, err := limited.conn.JetStream.CreateConsumer(t.Context(), stream, limited.topics.config("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := limited.Fence(t.Context(), testJob(1)); err != nil {
		t.Errorf("where there is no room for it: %v", err)
	}
}

// mutations: keepFences that fails where there is no answer about the consumer, or that asks again
// at once, make this fail.
func TestFencesDoNotWaitForTheirConsumerOneAfterTheOther(t *testing.T) {
	denied := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.*.*." + fences, "$JS.API.CONSUMER.*.*." + fences + ".>"}}}
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "operator", Password: "o", Permissions: denied}}
	})
	clk := clocktesting.NewFakeClock(time.Now())
	q := newQueue(t, s, func(c *config) { c.User, c.Password, c.Clock = "operator", "o", clk })
	for n := range 2 {
		clk.Step(time.Second)
		begin := q.topics.get(fences).refusedAt
		if _, err := q.Fence(t.Context(), testJob(n)); err != nil {
			t.Errorf("fence %d without an answer about the consumer: %v", n, err)
		}
		if k := q.topics.get(fences); k.refused == nil || n > 0 && k.refusedAt != begin {
			t.Errorf("fence %d: %v is remembered, as of %v", n, k.refused, k.refusedAt)
		}
	}
}

// answering has NATS refuse to say anything of consumers.
type answering struct {
	jetstream.JetStream

	with *jetstream.APIError // nil: it answers
}

func (a *answering) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	if a.with != nil {
		return nil, a.with
	}
	return a.JetStream.Consumer(ctx, stream, name)
}

// A cluster of NATS that has no meta leader for a moment refuses all, and the consumer is there.
//
// mutations: keepFences that takes such an answer for a refusal, or a lack of resources for one of
// these, makes this fail.
func TestAServerThatIsUnavailableSaysNothingOfTheConsumerOfFences(t *testing.T) {
	for name, c := range map[string]struct {
		with    *jetstream.APIError
		refused bool
	}{
		"it has no leader":        {&jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}, false},
		"it lacks resources":      {&jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}, true},
		"it has consumers enough": {&jetstream.APIError{Code: 400, ErrorCode: 10026, Description: "maximum consumers limit reached"}, true},
	} {
		var told atomic.Bool
		clk := clocktesting.NewFakeClock(time.Now())
		q := newQueue(t, natstest.Start(t), func(c *config) {
			c.Clock = clk
			c.Log = funcr.New(func(_, args string) {
				if strings.Contains(args, "workers could delete them") {
					told.Store(true)
				}
			}, funcr.Options{})
		})
		if _, err := q.Fence(t.Context(), testJob(1)); err != nil {
			t.Fatal(err)
		}
		stub := &answering{JetStream: q.conn.JetStream, with: c.with}
		q.conn.JetStream = stub
		clk.Step(topicRecheck)
		if err := q.topics.keepFences(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		k := q.topics.get(fences)
		if told.Load() != c.refused || (k.refused != nil) == c.refused {
			t.Errorf("%s: told as refused %t, to be asked for soon %v", name, told.Load(), k.refused)
		}
		stub.with = nil
		if clk.Step(refusalHolds); q.topics.keepFences(t.Context()) != nil || k.refused != nil || !k.isKnown(q.topics, q.conn.Generation()) {
			t.Errorf("%s: it is not known again: %+v", name, k)
		}
	}
}
