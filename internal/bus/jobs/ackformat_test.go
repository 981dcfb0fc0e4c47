// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// longAcks has the server write the subjects of acks and of flow control as NATS 2.14 can, and as
// later versions will: with a domain and an account before the stream.
func longAcks(o *server.Options) {
	o.FeatureFlags = map[string]bool{server.FeatureFlagJsAckFormatV2: true}
}

// mutation: Operator, Worker or the exports for Confined without the long subjects makes this fail.
func TestTheRightsAreEnoughWhereSubjectsOfAcksNameAnAccount(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, conn, q, _ := twoTopics(t, names, longAcks)
	doesItsJob(t, dial(t, s, "trusted", "_INBOX"), conn, bustest.JobID(0))
	if err := q.Publish(t.Context(), Job{ID: bustest.JobID(2), Topic: mine}); err != nil {
		t.Fatal(err)
	}
	doesItsJob(t, dial(t, s, "worker", mineInbox), conn, bustest.JobID(2))

	c, err := conn.JetStream.CreateConsumer(t.Context(), names.ResultsStream(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Errorf("the operator cannot acknowledge a result: %v", err)
	}
}

// What a worker may say of its own jobs is of no other consumer, whichever of the two forms a
// subject of it is read in: a topic may be called as a stream is, or a number.
//
// mutation: rights to $JS.ACK.*.*.<stream>.<durable>.> make this fail.
func TestTheLongSubjectsOfAcksAreNoShortOnesOfOthers(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, _, _, _ := twoTopics(t, names, longAcks)
	refused := make(chan error, 10)
	for _, login := range []struct{ user, inbox string }{{"worker", mineInbox}, {"trusted", "_INBOX"}} {
		nc, err := nats.Connect(s.URL(), nats.UserInfo(login.user, "w"), nats.CustomInboxPrefix(login.inbox),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		stream, own, others := names.JobsStream(), protocol.Durable(mine), protocol.Durable(theirs)
		for _, subject := range []string{
			"$JS.ACK." + stream + "." + others + "." + stream + "." + own + ".2.1.0",
			"$JS.ACK._.hash." + stream + "." + others + ".1.2.1.1.0",
			"$JS.ACK._.hash." + names.ResultsStream() + "." + own + ".1.1.1.1.0",
		} {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			isRefused(t, nc, refused, subject)
		}
	}
}
