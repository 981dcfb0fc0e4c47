// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rights"
)

// operatorEmpties runs the commands of the page that take the operator's keys out of a Redis.
func operatorEmpties(t *testing.T, nodes ...string) {
	t.Helper()
	const documented = "redis.other.svc:6379"
	commands := commandsUnder(t, "## Another Redis", "redis-cli")
	if !strings.Contains(commands, documented) {
		t.Fatalf("the commands name no node:\n%s", commands)
	}
	commands = strings.ReplaceAll(commands, documented, strings.Join(nodes, " "))
	if _, err := run(nil, "bash", "-c", "set -euo pipefail\n"+commands); err != nil {
		t.Fatal(err)
	}
}

// gpu asks for a mutex.
func gpu(t *testing.T, s *store.Store, run string) (string, error) {
	t.Helper()
	a, err := s.TakeLocks(t.Context(), store.Ticket{ID: run, Run: "default/" + run, Tree: "default/" + run, Version: "1"}, []store.Want{{Name: "gpu", Permits: 1, Limit: 1, Longest: 9}})
	return a.State, err
}

// counted opens the locks of a Redis with those that runs have.
func counted(t *testing.T, s *store.Store, holds ...store.Holding) {
	t.Helper()
	token, err := s.BeginLocks(t.Context())
	if err == nil {
		_, err = s.RestoreLocks(t.Context(), token, 10, holds)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A Redis that was used before says that its data is whole. After the commands of the page it does
// not: the locks are counted from runs, so one that was given meanwhile elsewhere is held.
//
// mutation: the keys {adm* taken from the commands make this fail: default/r3 has the lock, too.
func TestARedisThatWasUsedBeforeGivesNoLockTwice(t *testing.T) {
	first := redistest.Start(t)
	on := func(server *redistest.Server) *store.Store { return store.New(server.Client(), store.Options{}) }
	counted(t, on(first))
	other := on(redistest.Start(t))
	counted(t, other)
	if state, err := gpu(t, other, "r2"); state != store.LocksHeld || err != nil {
		t.Fatalf("r2 is %q, %v", state, err)
	}
	operatorEmpties(t, first.Addr())
	back := on(first) // of a process that was not there before
	state, err := gpu(t, back, "r3")
	if _, rebuilds := errors.AsType[*store.RebuildingError](err); !rebuilds {
		t.Fatalf("r3 is %q, %v, while r2 has the lock", state, err)
	}
	counted(t, back, store.Holding{Ticket: store.Ticket{ID: "r2", Run: "default/r2", Tree: "default/r2", Version: "1"}, Fence: 11, Locks: []store.Hold{{Name: "gpu", Permits: 1}}})
	if state, err := gpu(t, back, "r3"); state != store.LocksWaiting || err != nil {
		t.Errorf("r3 is %q, %v, while r2 has the lock", state, err)
	}
}

// Keys may have signs that mean something to a shell and to redis-cli. In a Redis Cluster the user
// is the operator's, which has the rights for it.
//
// mutations: a pattern, or the sed for signs, taken from the commands makes this fail.
func TestTheCommandsOfThePageTakeAllKeysOfTheOperatorOut(t *testing.T) {
	keys := []string{"{run:6b7f}:lock", "{run:6b7f}:fence", "{adm-installation}", "{adm-locks}:holds", `{adm:batch:a"b'c\d$e*}:slots`, "{admkeys:team-a}:keys"}
	t.Run("one server", func(t *testing.T) {
		const others = "somebody:{adm}"
		server := redistest.Start(t)
		set(t, server.Client(), append(keys, others))
		operatorEmpties(t, server.Addr())
		if diff := cmp.Diff([]string{others}, server.Client().Keys(t.Context(), "*").Val()); diff != "" {
			t.Errorf("keys that stay (-want +got):\n%s", diff)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		user := redistest.Login{Name: "syncopate", Password: "secret", Rights: rights.Redis(true)}
		var nodes, with []string
		for _, s := range redistest.StartCluster(t, redistest.Host{}, user).Masters() {
			nodes, with = append(nodes, s.Addr()), append(with, user.Name+":"+user.Password+"@"+s.Addr())
		}
		c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: nodes, Username: user.Name, Password: user.Password})
		t.Cleanup(func() { _ = c.Close() })
		set(t, c, keys)
		operatorEmpties(t, with...)
		for _, key := range keys {
			if n, err := c.Exists(t.Context(), key).Result(); n != 0 || err != nil {
				t.Errorf("%s stays: %v", key, err)
			}
		}
	})
}

func set(t *testing.T, c redis.UniversalClient, keys []string) {
	t.Helper()
	for _, key := range keys {
		if err := c.Set(t.Context(), key, "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
