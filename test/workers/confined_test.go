// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const ownInbox = "_INBOX_kit"

// confined is a server with a user of the kit, who may do everything, and one that is confined to
// the topic of the kit. It gives the kit's side, and the environment of a worker.
func confined(t *testing.T) (o *operator, env []string) {
	t.Helper()
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := rights.Accounts{
		Name:     "SYNCOPATE",
		Users:    []rights.User{{Name: "kit", Password: `"k"`, May: rights.NATS{Publish: []string{">"}, Subscribe: []string{">"}}}},
		Confined: []rights.Confined{{Names: names, Account: "WORKER", User: "worker", Password: `"w"`, Topics: []string{DefaultTopic}, Inbox: ownInbox}},
	}.Text()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, func(o *server.Options) { o.Accounts, o.Users = config.Accounts, config.Users })
	as := func(login string) string { return strings.Replace(s.URL(), "://", "://"+login+"@", 1) }
	return operateAt(t, Config{URL: as("kit:k"), AckWait: time.Hour}), []string{"NATS_URL=" + as("worker:w"), "INBOX_PREFIX=" + ownInbox}
}

// answered waits for the answers of jobs.
func answered(t *testing.T, o *operator, ids ...protocol.JobID) {
	t.Helper()
	for _, id := range ids {
		if err := o.await(t.Context(), id.Step+" is answered", func() (bool, error) {
			got, err := o.stored(t.Context(), id)
			return len(got) > 0 && got[len(got)-1].Status == protocol.StatusSucceeded, err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A permission that is missing, here that for the object store, ends no connection: only the job
// that needs it waits, where nobody told the worker that it has none. AckWait is so long that no
// second delivery helps.
//
// mutations, all of worker.py: _refused that raises, or that ends no request, makes this fail; so
// does an inbox of all.
func TestThePythonWorkerKeepsItsConnectionWithoutAPermission(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	o, env := confined(t)
	p := runs(t, filepath.Join(examples, "worker-python"), env, "python3", "-B", "worker.py", DefaultTopic)
	if _, err := o.dispatch(t.Context(), newJob("large"), input{Do: "large", Bytes: 100 << 10}); err != nil {
		t.Fatal(err)
	}
	if err := o.await(t.Context(), "the large one is tried a few times", func() (bool, error) {
		return strings.Count(p.Output(), "publishing again") > 3, nil
	}); err != nil {
		t.Fatal(err)
	}
	var ids []protocol.JobID
	for _, step := range []string{"a", "b", "c", "d"} {
		ids = append(ids, newJob(step))
		if _, err := o.dispatch(t.Context(), ids[len(ids)-1], input{Do: "succeed", Value: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	answered(t, o, ids...)
	if strings.Contains(p.Output(), "connecting again") {
		t.Error("the connection ended")
	}
}

// NATS does not tell a worker that it has no object store, so the worker has to be told: else a
// large output holds its slot until the attempt's time-out, and the run never learns why.
//
// mutations: a bound of outputs that does not look at NO_OBJECT_STORE leaves the job without an
// answer; so does a sample in Go that does not read INBOX_PREFIX. One that does not read TOPICS
// asks for jobs of topics that it may not have.
func TestTheSampleWorkersWithoutAnObjectStoreFailLargeOutputs(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	node := installNode(t)
	for name, c := range map[string]struct {
		dir  string
		args []string
	}{
		"python": {filepath.Join(examples, "worker-python"), []string{"python3", "-B", "worker.py", DefaultTopic}},
		"node":   {node, []string{"node", "worker.mjs", DefaultTopic}},
		"go":     {"", []string{buildGo(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, env := confined(t)
			p := runs(t, c.dir, append(env, "NO_OBJECT_STORE=1", "TOPICS="+DefaultTopic), c.args...)
			id := newJob("large")
			if _, err := o.dispatch(t.Context(), id, input{Do: "large", Bytes: 65 << 10}); err != nil {
				t.Fatal(err)
			}
			var got protocol.Result
			if err := o.await(t.Context(), "the large one is answered", func() (bool, error) {
				all, err := o.stored(t.Context(), id)
				if len(all) > 0 {
					got = all[len(all)-1]
				}
				return got.Status == protocol.StatusFailed, err
			}); err != nil {
				t.Fatal(err)
			}
			if !got.Final || got.Error.Code != "TooLarge" {
				t.Errorf("got %+v, %+v", got, got.Error)
			}
			if strings.Contains(strings.ToLower(p.Output()), "permissions violation") {
				t.Error("it asks for what it may not have")
			}
		})
	}
}

// mutation: an inbox of all in nats.mjs makes this fail.
func TestTheNodeWorkersCanBeConfined(t *testing.T) {
	t.Parallel()
	dir := installNode(t)
	for _, program := range []string{"worker.mjs", "short.mjs"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			o, env := confined(t)
			runs(t, dir, env, "node", program, DefaultTopic)
			id := newJob("small")
			if _, err := o.dispatch(t.Context(), id, input{Do: "succeed", Value: []byte("1")}); err != nil {
				t.Fatal(err)
			}
			answered(t, o, id)
		})
	}
}
