// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// The accounts of an installation that runs are printed anew for its first confined worker. Who
// did jobs before still does.
//
// mutations: --confined that leaves the trusted worker out, or has his name or variable for the
// confined one, makes this fail.
func TestAConfinedWorkerIsAddedBesideTheTrustedOne(t *testing.T) {
	for name, password := range map[string]string{
		"NATS_OPERATOR_PASSWORD": "o", "NATS_WORKER_PASSWORD": "w", "NATS_WORKER_MAIL_ROOM_PASSWORD": "m", "NATS_ADMIN_PASSWORD": "a",
	} {
		t.Setenv(name, password)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	printed := newPlugin(t).must("permissions", "nats", "--admin", "--topics", "mail.send", "--confined", "_INBOX_mail-room")
	if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, func(o *server.Options) { o.Accounts, o.Users = config.Accounts, config.Users })
	conn, keys := bustest.Connect(t, bus.Config{URL: s.URL(), User: "operator", Password: "o"}), bustest.Keys(t)
	queue := jobs.New(conn, keys, results.NewReader(conn, keys), jobs.Options{})
	for i, w := range []struct{ user, password, inbox, topic string }{
		{"worker", "w", "_INBOX", "any.topic"},
		{"worker-mail-room", "m", "_INBOX_mail-room", "mail.send"},
	} {
		id := bustest.JobID(i)
		if err := queue.Publish(t.Context(), jobs.Job{ID: id, Topic: w.topic}); err != nil {
			t.Fatal(err)
		}
		nc, err := nats.Connect(s.URL(), nats.UserInfo(w.user, w.password), nats.CustomInboxPrefix(w.inbox), natstest.Patient())
		if err != nil {
			t.Errorf("%s: %v", w.user, err)
			continue
		}
		ctx, stop := context.WithCancel(t.Context())
		works := worker.New(nc, worker.Options{})
		works.Handle(w.topic, func(context.Context, worker.Job) (any, error) { return "done", nil })
		ended := make(chan error, 1)
		go func() { ended <- works.Run(ctx) }()
		bustest.Eventually(t, w.user+" does its job", func() bool {
			m, err := conn.Read(t.Context(), conn.Names.ResultsStream(), bus.Query{LastFor: conn.Names.Result(id)})
			return err == nil && m != nil
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		nc.Close()
	}
}

// Names of variables of the servers are in capitals. Two workers whose inboxes differ in case only
// would have one password.
//
// mutation: an inbox prefix with capitals makes this fail.
func TestNoTwoConfinedWorkersShareAPassword(t *testing.T) {
	p := newPlugin(t)
	seen := map[string]string{}
	for _, inbox := range []string{"_INBOX_mail", "_INBOX_Mail", "_INBOX_MAIL", "_INBOX_mail-room", "_INBOX_mail_room"} {
		printed, _, err := p.call("permissions", "nats", "--topics", "mail.send", "--confined", inbox)
		if err != nil {
			continue
		}
		variable := regexp.MustCompile(`\$NATS_WORKER_\w+_PASSWORD`).FindString(printed)
		if other := seen[variable]; other != "" || variable == "" {
			t.Errorf("%s has the variable %q, as %s", inbox, variable, other)
		}
		seen[variable] = inbox
	}
	if len(seen) != 2 {
		t.Errorf("printed are %v", seen)
	}
}
