// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	mine, theirs = "mail.send", "pay.out"
	mineInbox    = "_INBOX_mail"
	theirOutput  = `"theirs"`
)

// confinedTo is the worker of my topic.
func confinedTo(names protocol.Names) rights.Confined {
	return rights.Confined{Names: names, Account: "MAIL", User: "worker", Password: `"w"`, Topics: []string{mine}, Inbox: mineInbox}
}

// withAccounts is a server whose users have the rights that the plugin prints.
func withAccounts(t *testing.T, names protocol.Names, adjust ...func(*server.Options)) *natstest.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	everything := rights.NATS{Publish: []string{">"}, Subscribe: []string{">"}}
	text := rights.Accounts{
		Name: "SYNCOPATE",
		Users: []rights.User{
			{Name: "operator", Password: `"o"`, May: rights.Operator(names)},
			{Name: "trusted", Password: `"w"`, May: rights.Worker(names, mine)},
			{Name: "spy", Password: `"w"`, May: everything},
		},
		Confined: []rights.Confined{confinedTo(names)},
	}.Text()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	adjust = append(adjust, func(o *server.Options) { o.Accounts, o.Users = config.Accounts, config.Users })
	return natstest.Start(t, adjust...)
}

// A worker's user that is confined to a topic does its jobs, and can neither read nor erase what is
// of another topic.
//
// mutation: Confined that keeps the object store, the common inbox, or "*" for the durable makes
// this fail: each was tried. So does an account without $JS.API.INFO: its worker does no job.
func TestAConfinedWorkerCannotReadOrEraseWhatIsOfOtherTopics(t *testing.T) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	s, conn, q, ref := twoTopics(t, names)
	refused := make(chan error, 100)
	nc, err := nats.Connect(s.URL(), nats.UserInfo("worker", "w"), nats.CustomInboxPrefix(mineInbox),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	payloadStream, jobsStream := names.PayloadsStream(), names.JobsStream()
	for what, subject := range map[string]string{
		"overwrite an output":     names.PayloadEntry(ref.Name),
		"read an output":          "$JS.API.DIRECT.GET." + payloadStream + "." + names.PayloadEntry(ref.Name),
		"read any message":        "$JS.API.STREAM.MSG.GET." + payloadStream,
		"read jobs":               "$JS.API.STREAM.MSG.GET." + jobsStream,
		"read results":            "$JS.API.STREAM.MSG.GET." + names.ResultsStream(),
		"delete a job":            "$JS.API.STREAM.MSG.DELETE." + jobsStream,
		"purge outputs":           "$JS.API.STREAM.PURGE." + payloadStream,
		"purge jobs":              "$JS.API.STREAM.PURGE." + jobsStream,
		"delete a stream":         "$JS.API.STREAM.DELETE." + jobsStream,
		"change a stream":         "$JS.API.STREAM.UPDATE." + jobsStream,
		"make a consumer":         "$JS.API.CONSUMER.CREATE." + jobsStream + ".x." + names.TopicJobs(theirs),
		"take another's job":      "$JS.API.CONSUMER.MSG.NEXT." + jobsStream + "." + protocol.Durable(theirs),
		"ack another's job":       "$JS.ACK." + jobsStream + "." + protocol.Durable(theirs) + ".1.2.2.1.0",
		"publish a job":           names.Job(theirs, bustest.JobID(2)),
		"tell workers to stop":    names.Control(bustest.JobID(1).RunUID),
		"write a dead letter":     names.DeadLetter("rejected", ""),
		"ack a result":            "$JS.ACK." + names.ResultsStream() + ".x.1.1.1.1.0",
		"take the operator's bag": "$JS.API.CONSUMER.MSG.NEXT." + names.ResultsStream() + ".x",
	} {
		m := nats.NewMsg(subject)
		m.Reply = nc.NewInbox()
		m.Header.Set(protocol.HeaderRollup, "all")
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		isRefused(t, nc, refused, what)
	}
	for _, subject := range []string{"_INBOX.>", ">", names.Prefix + ".jobs.>", names.Prefix + ".results.>", "$O.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		isRefused(t, nc, refused, "listen to "+subject)
	}
	if _, err := js.Stream(t.Context(), payloadStream); err == nil {
		t.Error("it is told about the object store")
	}
	if data, err := payloads.New(conn).Get(t.Context(), ref); err != nil || string(data) != theirOutput {
		t.Errorf("the output is %q, %v", data, err)
	}
	doesItsJob(t, nc, conn, bustest.JobID(0))
	if left, err := q.List(t.Context()); err != nil || len(left) != 1 || left[0].Topic != theirs {
		t.Errorf("queued are %v, %v", left, err)
	}
}

func isRefused(t *testing.T, nc *nats.Conn, refused <-chan error, what string) {
	t.Helper()
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-refused:
		if err == nil {
			t.Errorf("%s: refused without an error", what)
		}
	case <-time.After(time.Minute):
		t.Errorf("it may %s", what)
	}
}

func doesItsJob(t *testing.T, nc *nats.Conn, conn *bus.Conn, id protocol.JobID) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := worker.New(nc, worker.Options{})
	w.Handle(mine, func(context.Context, worker.Job) (any, error) { return "done", nil })
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	bustest.Eventually(t, "its result is stored, and the job is done", func() bool {
		m, err := conn.Read(t.Context(), conn.Names.ResultsStream(), bus.Query{LastFor: conn.Names.Result(id)})
		job, jobErr := conn.Read(t.Context(), conn.Names.JobsStream(), bus.Query{LastFor: conn.Names.Job(mine, id)})
		return err == nil && m != nil && jobErr == nil && job == nil
	})
	stop()
	if err := <-done; err != nil {
		t.Error(fmt.Errorf("worker: %w", err))
	}
}
