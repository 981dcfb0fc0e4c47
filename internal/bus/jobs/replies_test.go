// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// attempt is a request that a worker may make. NATS asks no permission for where its answer goes.
type attempt struct {
	what, subject, body string
	header              nats.Header
	traced              bool
}

func attempts(names protocol.Names) []attempt {
	consumer := names.JobsStream() + "." + protocol.Durable(mine)
	next, ack := "$JS.API.CONSUMER.MSG.NEXT."+consumer, "$JS.ACK."+consumer+".1.99.99.1.0"
	return []attempt{
		{what: "a pull that is no JSON", subject: next, body: "{"},
		{what: "a pull of what is too large", subject: next, body: `{"batch":1,"max_bytes":1,"expires":1000000000}`},
		{what: "a pull that does not wait", subject: next, body: `{"batch":1,"no_wait":true}`},
		{what: "a pull of a newer server", subject: next, header: nats.Header{"Nats-Required-Api-Level": {"99"}}},
		{what: "a question about the consumer", subject: "$JS.API.CONSUMER.INFO." + consumer},
		{what: "an ack", subject: ack},
		{what: "a sign of progress", subject: ack, body: "+WPI"},
		{what: "an ack that pulls", subject: ack, body: "+NXT {"},
		{what: "a result", subject: names.Result(bustest.JobID(7)), body: "{}"},
		{what: "a trace", subject: names.Result(bustest.JobID(7)), traced: true},
	}
}

// targets are subjects at which nothing of a worker may arrive. Those that delete streams are last,
// so that what is not confined shows itself at all others.
func targets(names protocol.Names) []string {
	all := []string{
		"$JS.API.CONSUMER.MSG.NEXT." + names.JobsStream() + "." + protocol.Durable(theirs),
		"$JS.ACK." + names.JobsStream() + "." + protocol.Durable(theirs) + ".1.2.1.1.0",
		names.Control(bustest.JobID(1).RunUID), names.DeadLetter("rejected", ""),
		names.Job(theirs, bustest.JobID(9)), "$O." + names.PayloadsBucket() + ".M.x",
		"$JS.API.CONSUMER.DELETE." + names.JobsStream() + "." + protocol.Durable(theirs),
	}
	streams := []string{names.PayloadsStream(), names.JobsStream(), names.ResultsStream(), names.ControlStream(), names.DeadLettersStream()}
	for _, verb := range []string{"PURGE", "DELETE"} {
		for _, s := range streams {
			all = append(all, "$JS.API.STREAM."+verb+"."+s)
		}
	}
	return all
}

func dial(t *testing.T, s *natstest.Server, user, inbox string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.URL(), nats.UserInfo(user, "w"), nats.CustomInboxPrefix(inbox), natstest.Patient(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // some is refused
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// heard counts what arrives at the targets of all that a worker attempts.
func heard(t *testing.T, s *natstest.Server, names protocol.Names, worker *nats.Conn) map[string]int {
	t.Helper()
	spy, all, got := dial(t, s, "spy", "_INBOX_spy"), attempts(names), map[string]int{}
	messages := make(chan *nats.Msg, 10_000)
	for _, target := range targets(names) {
		if _, err := spy.ChanSubscribe(target, messages); err != nil {
			t.Fatal(err)
		}
	}
	if err := spy.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, target := range targets(names) {
		for _, a := range all {
			m := &nats.Msg{Subject: a.subject, Reply: target, Data: []byte(a.body), Header: a.header}
			if a.traced {
				m.Header = nats.Header{"Nats-Trace-Dest": {target}, "Nats-Trace-Only": {"true"}}
			}
			if err := worker.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A stream answers one after the other. Where it is deleted, nobody answers.
	for _, a := range []attempt{all[0], all[4], all[8]} {
		_, _ = worker.Request(a.subject, []byte(a.body), 5*time.Second)
	}
	if err := spy.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	for len(messages) > 0 {
		got[(<-messages).Subject]++
	}
	return got
}

// twoTopics is a server with a job of each topic, and an output.
func twoTopics(
	t *testing.T, names protocol.Names, adjust ...func(*server.Options),
) (*natstest.Server, *bus.Conn, *Queue, protocol.OutputRef) {
	t.Helper()
	s := withAccounts(t, names, adjust...)
	conn := bustest.Connect(t, bus.Config{URL: s.URL(), User: "operator", Password: "o"})
	signing := bustest.Keys(t)
	q := New(conn, signing, results.NewReader(conn, signing), Options{})
	for i, topic := range []string{mine, theirs} {
		bustest.Eventually(t, "the job is stored", func() bool { return q.Publish(t.Context(), Job{ID: bustest.JobID(i), Topic: topic}) == nil })
	}
	ref := protocol.NewOutputRef(bustest.JobID(1), []byte(theirOutput))
	if err := payloads.New(conn).Put(t.Context(), ref, []byte(theirOutput)); err != nil {
		t.Fatal(err)
	}
	return s, conn, q, ref
}

// A worker chooses where answers go. Those of a confined one stay in its account: they purge and
// delete no stream, and are no jobs, results, control messages or dead letters.
//
// mutation: the confined user in the account of the installation makes this fail.
func TestAnswersToAConfinedWorkerReachNothingOfOthers(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, conn, q, ref := twoTopics(t, names)
	if got := heard(t, s, names, dial(t, s, "worker", mineInbox)); len(got) > 0 {
		t.Errorf("its answers arrive at %v", got)
	}
	if data, err := payloads.New(conn).Get(t.Context(), ref); err != nil || string(data) != theirOutput {
		t.Errorf("the output is %q, %v", data, err)
	}
	if left, err := q.List(t.Context()); err != nil || len(left) != 2 {
		t.Errorf("queued are %v, %v", left, err)
	}
}

// What the test above attempts does harm where nothing confines it. Where this fails because NATS
// mends it, docs/security.md says too much of workers that are not confined.
func TestAnswersToAWorkerThatIsNotConfinedEraseStreams(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, conn, _, ref := twoTopics(t, names)
	got := heard(t, s, names, dial(t, s, "trusted", "_INBOX"))
	for _, target := range targets(names) {
		if got[target] == 0 && !strings.HasPrefix(target, "$JS.ACK.") { // which NATS refuses
			t.Errorf("nothing arrives at %s", target)
		}
	}
	bustest.Eventually(t, "the output is gone", func() bool {
		_, err := payloads.New(conn).Get(t.Context(), ref)
		return err != nil
	})
}
