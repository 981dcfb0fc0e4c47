// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// askAs is what the check learns as each of these users.
func askAs(t *testing.T, names protocol.Names, users ...rights.User) []check.User {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(rights.Account("SYNCOPATE", users...)), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, func(o *server.Options) { o.Accounts, o.Users = config.Accounts, config.Users })
	learnt := make([]check.User, len(users))
	for i, u := range users {
		nc, err := nats.Connect(s.URL(), nats.UserInfo(u.Name, "secret"), natstest.Patient())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 { // an answer may be late on a busy machine
			learnt[i] = user(t.Context(), nc, names)
			if learnt[i].Why == "" || !slices.Contains(u.May.Publish, whoAmI) {
				break
			}
		}
		nc.Close()
	}
	return learnt
}

// The check runs as the operator's own user, as docs/production.md has it: with the rights that
// `kubectl syncopate permissions nats` prints it is told that none is missing, and without any one
// of them that this one is.
// mutations: rights.Operator without $SYS.REQ.USER.INFO makes this fail, as does a list of subjects
// that leaves one of its rights out.
func TestTheCheckSeesEachRightOfTheOperator(t *testing.T) {
	names := protocol.Names{Prefix: "acme"}
	may := rights.Operator(names)
	users := []rights.User{{Name: "operator", Password: `"secret"`, May: may}}
	for i := range may.Publish {
		less := rights.NATS{Publish: slices.Delete(slices.Clone(may.Publish), i, i+1), Subscribe: may.Subscribe}
		users = append(users, rights.User{Name: fmt.Sprintf("operator-%d", i), Password: `"secret"`, May: less})
	}
	learnt := askAs(t, names, users...)
	if all := learnt[0]; all.Why != "" || len(all.Missing) > 0 || all.Name != "operator" {
		t.Errorf("with all rights: %+v", all)
	}
	for i, right := range may.Publish {
		less := learnt[i+1]
		if told := len(less.Missing) == 1 && covers(right, less.Missing[0]); !told && less.Why == "" {
			t.Errorf("without %s the check misses %q", right, less.Missing)
		}
		if right != whoAmI && less.Why != "" {
			t.Errorf("without %s: %s", right, less.Why)
		}
	}
}
