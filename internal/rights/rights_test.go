// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: a word left out of Redis makes this fail.
func TestRedisHasTheRightsOfAllParts(t *testing.T) {
	for _, file := range []string{"../lockmgr/doc.go", "../quota/store/doc.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, after, found := strings.Cut(string(text), "An ACL user needs")
		documented, _, ended := strings.Cut(after, "and in a cluster")
		if !found || !ended {
			t.Fatalf("%s lists no rights", file)
		}
		for word := range strings.FieldsSeq(documented) {
			if strings.ContainsAny(word[:1], "+~&") && !slices.Contains(Redis(false), word) {
				t.Errorf("%s is in %s only", word, file)
			}
		}
	}
}

// mutation: a bracket or a quote left out makes this fail.
func TestAnAccountIsReadByTheServer(t *testing.T) {
	n := protocol.Names{Prefix: "team-a"}
	path := t.TempDir() + "/nats.conf"
	text := Account("SYNCOPATE", User{"operator", `"secret"`, Operator(n)}, User{"worker", "$WORKER_PASSWORD", Worker(n, "mail.send", "gpu")})
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WORKER_PASSWORD", "hush")
	o, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Accounts) != 1 || len(o.Users) != 2 {
		t.Fatalf("%d accounts, %d users", len(o.Accounts), len(o.Users))
	}
	worker := o.Users[slices.IndexFunc(o.Users, func(u *server.User) bool { return u.Username == "worker" })]
	if worker.Password != "hush" || !slices.Contains(worker.Permissions.Publish.Allow, "$JS.API.CONSUMER.MSG.NEXT.TEAM_A_JOBS.mail_send") {
		t.Errorf("the worker may %+v", worker.Permissions.Publish)
	}
	for _, u := range o.Users {
		for _, s := range slices.Concat(u.Permissions.Publish.Allow, u.Permissions.Subscribe.Allow) {
			if s == ">" || strings.HasPrefix(s, "$JS.API.>") {
				t.Errorf("%s may %s", u.Username, s)
			}
		}
	}
}
