// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// received gives the next message of a subscription.
func received(t *testing.T, what string, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return m
}

// Pulls, acks, results and cancellation come and go through the worker's own account.
//
// mutations: MSG.NEXT without response_type, the import of control, results, or acks left out: each
// makes this fail.
func TestAConfinedWorkerDoesWhatTheProtocolAsksFor(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, _, q, _ := twoTopics(t, names)
	nc, spy := dial(t, s, "worker", mineInbox), dial(t, s, "spy", "_INBOX_spy")
	publish := func(i int) {
		t.Helper()
		if err := q.Publish(t.Context(), Job{ID: bustest.JobID(i), Topic: mine}); err != nil {
			t.Fatal(err)
		}
	}
	publish(2)
	inbox := nc.NewInbox()
	pulled, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	next := "$JS.API.CONSUMER.MSG.NEXT." + names.JobsStream() + "." + protocol.Durable(mine)
	if err := nc.PublishRequest(next, inbox, []byte(`{"batch":3,"expires":60000000000,"idle_heartbeat":100000000}`)); err != nil {
		t.Fatal(err)
	}
	jobs := []*nats.Msg{received(t, "a job", pulled), received(t, "a second one of the same pull", pulled)}
	if m := received(t, "a heartbeat", pulled); m.Header.Get("Status") != "100" {
		t.Fatalf("no heartbeat: %v", m.Header)
	}
	publish(3)
	for len(jobs) < 3 {
		if m := received(t, "a job that comes while a pull waits", pulled); m.Header.Get("Status") == "" {
			jobs = append(jobs, m)
		}
	}
	settles(t, nc, jobs)
	publishesOnce(t, nc, names)

	control, err := nc.SubscribeSync(names.Control("*"))
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := spy.Publish(names.Control("run-0"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	received(t, "a cancellation", control)
	if left, err := q.List(t.Context()); err != nil || len(left) != 1 || left[0].Topic != theirs {
		t.Errorf("queued are %v, %v", left, err)
	}
}

// settles acknowledges a job, ends one, and takes one again that it gave back.
func settles(t *testing.T, nc *nats.Conn, jobs []*nats.Msg) {
	t.Helper()
	ask := func(m *nats.Msg, body string) {
		t.Helper()
		if _, err := nc.Request(m.Reply, []byte(body), time.Minute); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	}
	ask(jobs[0], "+WPI")
	ask(jobs[0], "")
	ask(jobs[1], "+TERM no more")
	ask(jobs[2], `-NAK {"delay":1000000}`)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), protocol.Names{Prefix: protocol.DefaultPrefix}.JobsStream(), protocol.Durable(mine))
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil || again.Subject() != jobs[2].Subject {
		t.Fatalf("given back is %v, %v", again, err)
	}
	if err := again.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// publishesOnce is told that its result is stored, and that it is stored already.
func publishesOnce(t *testing.T, nc *nats.Conn, names protocol.Names) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, twice := range []bool{false, true} {
		ack, err := js.Publish(t.Context(), names.Result(bustest.JobID(0)), []byte("{}"), jetstream.WithMsgID("once"))
		if err != nil || ack.Duplicate != twice || ack.Stream != names.ResultsStream() {
			t.Errorf("the answer is %+v, %v", ack, err)
		}
	}
}

// An account that a server finds when it reads its configuration again imports its services only
// the second time, as docs/protocol.md says: nats-server 2.15 begins them at its start, or when it
// reads an account again.
func TestAConfinedWorkerIsServedAfterItsServerReadItsConfigurationTwice(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	file := filepath.Join(t.TempDir(), "nats.conf")
	head := fmt.Sprintf("listen: \"127.0.0.1:-1\"\njetstream: {store_dir: %q}\n", t.TempDir())
	accounts := rights.Accounts{Name: "SYNCOPATE", Users: []rights.User{{Name: "operator", Password: `"w"`, May: rights.Operator(names)}}}
	write := func() {
		t.Helper()
		if err := os.WriteFile(file, []byte(head+accounts.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	options.NoSigs, options.NoLog = true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server is not ready")
	}
	accounts.Confined = []rights.Confined{confinedTo(names)}
	write()
	for range 2 {
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("worker", "w"), nats.CustomInboxPrefix(mineInbox), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Consumer(t.Context(), names.JobsStream(), protocol.Durable(mine)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a question about a consumer that nobody made yet is answered by %v", err)
	}
}

// A confined worker has no object store, and NATS does not tell it so: a large output, and one
// of an earlier step, would hold its slot until the attempt's time-out. Told so, it says what
// is wrong, once.
//
// mutations: answer, or payload, that does not look at Options.NoObjectStore waits for the object
// store, and this times out.
func TestAConfinedWorkerFailsWhatNeedsTheObjectStore(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, conn, q, ref := twoTopics(t, names)
	w := worker.New(dial(t, s, "worker", mineInbox), worker.Options{NoObjectStore: true, GracePeriod: -1})
	w.Handle(mine, func(ctx context.Context, j worker.Job) (any, error) {
		if j.ID == bustest.JobID(0) {
			return strings.Repeat("x", protocol.MaxInlineOutputBytes), nil
		}
		return j.Payload(ctx, ref)
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	reader := bustest.JobID(2)
	if err := q.Publish(t.Context(), Job{ID: reader, Topic: mine}); err != nil {
		t.Fatal(err)
	}
	for id, code := range map[protocol.JobID]string{bustest.JobID(0): worker.CodeTooLarge, reader: worker.CodeNoObjectStore} {
		if r := said(t, conn, names, id); r.Status != protocol.StatusFailed || !r.Final || r.Error.Code != code {
			t.Errorf("%s: got %+v, want a final failure %s", id, r, code)
		}
	}
	bustest.Eventually(t, "both are acknowledged", func() bool {
		left, err := q.List(t.Context())
		return err == nil && len(left) == 1 && left[0].Topic == theirs
	})
}

// said waits for the answer of a job.
func said(t *testing.T, conn *bus.Conn, names protocol.Names, id protocol.JobID) (r protocol.Result) {
	t.Helper()
	bustest.Eventually(t, id.String()+" is answered", func() bool {
		m, err := conn.Read(t.Context(), names.ResultsStream(), bus.Query{LastFor: names.Result(id)})
		if err != nil || m == nil {
			return false
		}
		r, err = protocol.DecodeResult(m.Data)
		return err == nil && r.Status != protocol.StatusStarted
	})
	return r
}
