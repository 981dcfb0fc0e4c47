// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

func TestDataThatIsLost(t *testing.T) {
	tests := map[string]func(s *scene){
		// mutation: open() that takes a missing epoch for a new one makes this fail.
		"a key that was never used is closed": func(s *scene) {
			s.flush()
			s.isClosed(RebuildMissing)
			s.rebuild()
			s.admits(run("a", 0, 0))
		},
		"after a flush the rebuilt slots count": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.admits(run("b", 0, 0))
			s.flush()
			s.isClosed(RebuildMissing)
			s.rebuild("a", "b")
			s.waits(run("c", 0, 0), 1, "")
			s.admits(run("a", 0, 0))
		},
		// mutation: an epoch in a key of its own makes this fail: the slots are gone
		// and nobody notices.
		"slots that are evicted are closed": func(s *scene) {
			s.admits(run("a", 0, 0))
			must(s.t, s.client.Del(s.t.Context(), s.quota.keys(acme())[0]).Err(), "evict")
			s.isClosed(RebuildMissing)
		},
		"while it is rebuilt it is closed": func(s *scene) {
			s.flush()
			token := s.begins()
			s.isClosed(RebuildUnderWay)
			s.finishes(token, nil)
			s.admits(run("a", 0, 0))
		},
		// mutation: reopen() without the comparison of tokens makes this fail.
		"a rebuild that lost its data again is begun anew": func(s *scene) {
			s.flush()
			lost := s.begins()
			s.flush()
			s.finishes(lost, ErrRebuildLost, "a")
			second := s.begins()
			s.finishes(lost, ErrRebuildLost, "a")
			s.isClosed(RebuildUnderWay)
			s.finishes(second, nil, "a", "b")
			s.waits(run("c", 0, 0), 1, "")
		},
		"a rebuild that lost its data again after somebody else ended it is begun anew": func(s *scene) {
			s.flush()
			token := s.begins()
			s.finishes(token, nil)
			s.flush()
			s.finishes(token, ErrRebuildLost)
			s.isClosed(RebuildMissing)
		},
		// mutation: begin.lua that makes a new token each time makes this fail.
		"those who rebuild at the same time do not stop each other": func(s *scene) {
			s.flush()
			first, second := s.begins(), s.begins()
			s.finishes(first, nil, "a")
			s.admits(run("b", 0, 0))
			s.finishes(second, nil, "a", "c")
			s.holds([]string{"a", "b", "c"}, nil, nil)
			s.waits(run("d", 0, 0), 1, "")
		},
		"a rebuild of open slots adds": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.rebuild("b")
			s.holds([]string{"a", "b"}, nil, nil)
		},
		"who is rebuilt keeps no place and no reservation": func(s *scene) {
			s.limit(0).waits(run("a", 0, 0), 1, "")
			s.limit(9).reserves("b", true)
			must(s.t, s.client.Del(s.t.Context(), s.quota.keys(acme())[0]).Err(), "evict")
			s.rebuild("a", "b")
			s.holds([]string{"a", "b"}, nil, nil)
		},
		// mutation: tidy() without PERSIST makes this fail.
		"slots have no end, what holds nothing has": func(s *scene) {
			slots := s.quota.keys(acme())[0]
			ends := func(want bool) {
				s.t.Helper()
				if left := s.client.PTTL(s.t.Context(), slots).Val(); (left > 0) != want {
					s.t.Errorf("the slots end in %s; want an end: %v", left, want)
				}
			}
			ends(true)
			s.admits(run("a", 0, 0))
			ends(false)
			s.releases("a")
			ends(true)
			must(s.t, s.quota.Restore(s.t.Context(), acme(), []string{"a"}), "restore")
			ends(false)
		},
		"a release while it is closed frees, and says that it must be repeated": func(s *scene) {
			s.admits(run("a", 0, 0))
			token := s.closes()
			if _, err := s.quota.Release(s.t.Context(), acme(), s.limits, "a"); !is[*RebuildingError](err) {
				s.t.Errorf("release: %v; want rebuilding", err)
			}
			s.finishes(token, nil)
			s.holds(nil, nil, nil)
		},
	}
	onEach(t, func(t *testing.T, client *redis.Client) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) { test(newScene(t, client, nil, 2)) })
		}
	})
}

// closes puts the slots into the state after a restart: the data is there, the epoch is of another
// server. It begins a rebuild.
func (s *scene) closes() string {
	s.t.Helper()
	must(s.t, s.client.HSet(s.t.Context(), s.quota.keys(acme())[0], ":epoch", "1 another").Err(), "change the epoch")
	s.isClosed(RebuildServer)
	return s.begins()
}

// The append-only file brings the data back, as it was or as it was a moment before.
//
// mutation: open() without the comparison with server(), or a server() that is constant, makes this
// and the next test fail.
func TestARestartWithPersistenceCloses(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--dir", t.TempDir())
	s := newScene(t, testClient(t, server.Addr()), nil, 2)
	s.admits(run("a", 0, 0))
	s.admits(run("b", 0, 0))
	s.releases("b")
	rebuilding := s.closesBy(server.Restart)
	s.finishes(rebuilding, nil, "c")
	s.holds([]string{"a", "c"}, nil, nil)
	s.waits(run("d", 0, 0), 1, "")

	t.Run("also in the middle of a rebuild", func(*testing.T) {
		s.flush()
		token := s.begins()
		server.Restart()
		s.finishes(token, ErrRebuildLost)
		s.rebuild()
	})
}

// closesBy is what closes an open key without taking its data, and begins a rebuild.
func (s *scene) closesBy(what func()) string {
	s.t.Helper()
	what()
	s.isClosed(RebuildServer)
	return s.begins()
}

func TestAReplicaThatLaggedIsClosedWhenItIsPromoted(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := replicaOf(t, master)
	there := master.Addr()
	old := newScene(t, testClient(t, there), nil, 2)
	old.admits(run("a", 0, 0))
	awaitReplica(t, master.Client())
	replica.Pause() // it misses what comes
	old.admits(run("b", 0, 0))
	master.Stop()
	replica.Resume()

	s := *old
	s.client = testClient(t, replica.Addr())
	s.quota = testQuota(s.client, Options{})
	must(t, s.client.ReplicaOf(t.Context(), "NO", "ONE").Err(), "promote")
	s.isClosed(RebuildServer)
	s.rebuild("a", "b")
	s.waits(run("c", 0, 0), 1, "")
	s.holds([]string{"a", "b"}, []string{"c"}, nil)
}

// The old master was away while another was used, and comes back as it was: open by its own run_id.
//
// mutation: a Store that does not learn terms makes this fail.
func TestAMasterThatComesBackWithOldDataIsClosed(t *testing.T) {
	first, second := redistest.Start(t), redistest.Start(t)
	var at atomic.Value
	at.Store(first.Addr())
	client := testClient(t, "", func(o *redis.Options) {
		o.MaxIdleConns = -1
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			addr, _ := at.Load().(string)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		o.ConnMaxLifetime = time.Nanosecond // each call looks anew
	})
	s := newScene(t, client, nil, 2)
	s.admits(run("a", 0, 0))
	at.Store(second.Addr())
	s.isClosed(RebuildMissing)
	s.rebuild("a")
	s.admits(run("b", 0, 0))
	at.Store(first.Addr())
	s.isClosed(RebuildOlder)
	s.rebuild("a", "b")
	s.waits(run("c", 0, 0), 1, "")

	t.Run("though the clock of the other server is behind", func(*testing.T) {
		key := s.quota.keys(acme())[0]
		s.quota.learn(key, reply{int64(1) << 52})
		s.isClosed(RebuildOlder)
		s.rebuild("a")
		s.limit(9).admits(run("b", 0, 0))
		if term := s.quota.floor(key); term != 1<<52+1 {
			t.Errorf("term %d; want one more", term)
		}
	})
}

// The clock of Redis was ahead, and is put right: the terms that replicas have seen are still to
// come. One that has seen less makes the rebuild, and the others believe it.
//
// mutations: begin.lua that forgets the term that its caller has seen, in a rebuild that begins or
// in one that is under way, or reopen that does not go beyond it, makes this fail: the data is
// closed and rebuilt again and again.
func TestARebuildGoesBeyondWhatAnybodyHasSeen(t *testing.T) {
	const ahead = 1 << 52
	for name, begin := range map[string]func(s *scene, seen *Store) string{
		"who has seen it begins": (*scene).beginsBy,
		"a rebuild is under way": func(s *scene, seen *Store) string { s.closes(); return s.beginsBy(seen) },
		"the closed data has it": func(s *scene, _ *Store) string {
			must(s.t, s.client.HSet(s.t.Context(), s.quota.keys(acme())[0], ":epoch", fmt.Sprintf("%d another", ahead)).Err(), "change the epoch")
			return s.begins()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, client *redis.Client) {
				s := newScene(t, client, nil, 9)
				s.admits(run("a", 0, 0))
				seen := testQuota(client, Options{})
				seen.learn(seen.keys(acme())[0], reply{int64(ahead)})
				token := begin(s, seen)
				if again := s.begins(); again != token {
					t.Fatalf("the rebuild is %s to one, and %s to another", again, token)
				}
				s.finishes(token, nil, "a")
				if _, err := seen.Admit(t.Context(), acme(), s.limits, run("b", 0, 0)); err != nil {
					t.Fatalf("after the rebuild: %v", err)
				}
				s.holds([]string{"a", "b"}, nil, nil)
			})
		})
	}
}

func (s *scene) beginsBy(g *Store) string {
	s.t.Helper()
	token, err := g.BeginRebuild(s.t.Context(), acme())
	must(s.t, err, "begin")
	return token
}

func TestAServerThatHidesItsRunIDIsNotTrusted(t *testing.T) {
	server := redistest.Start(t)
	s := newScene(t, testClient(t, server.Addr()), nil, 2)
	must(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err(), "take the right to INFO")
	_, admit := s.quota.Admit(t.Context(), acme(), s.limits, run("a", 0, 0))
	_, begin := s.quota.BeginRebuild(t.Context(), Key{Tenant: "new"})
	for call, err := range map[string]error{"admit": admit, "begin": begin} {
		if !is[*UnavailableError](err) || !strings.Contains(err.Error(), "can't run this command") {
			t.Errorf("%s: %v; want unavailable, because of INFO", call, err)
		}
	}
}

// replicaOf waits until a new replica is in step with its master.
func replicaOf(t *testing.T, master *redistest.Server) *redistest.Server {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	s := redistest.Start(t, "--replicaof", host, port)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for c := s.Client(); !strings.Contains(c.Info(ctx, "replication").Val(), "master_link_status:up"); {
		if ctx.Err() != nil {
			t.Fatal("the replica does not find its master")
		}
	}
	return s
}

// awaitReplica waits until a replica has what was written.
func awaitReplica(t *testing.T, master *redis.Client) {
	t.Helper()
	if n, err := master.Wait(t.Context(), 1, patience).Result(); n != 1 || err != nil {
		t.Fatalf("%d replicas are in step, %v", n, err)
	}
}

// A cluster refuses scripts whose keys are not in one slot; each key of a story is in one.
func TestAClusterServesTheScripts(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(redistest.FreePort(t))) // 10,000 above its own one may be taken
	admin := server.Client()
	must(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(), "add slots")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for admin.ClusterInfo(ctx).Err() != nil || !strings.Contains(admin.ClusterInfo(ctx).Val(), "cluster_state:ok") {
		if ctx.Err() != nil {
			t.Fatal("the cluster does not come up")
		}
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() { _ = client.Close() })
	for _, lock := range bothStrategies() {
		story(t, testQuota(client, Options{KeyPrefix: "prod-", Installation: "a"}), lock)
		must(t, client.FlushAll(t.Context()).Err(), "flush")
	}
}

// mutation: a right that the package documentation does not list, used by a script, makes this
// fail; so does one that is listed with a typing error.
func TestTheRightsOfTheDocumentationAreEnough(t *testing.T) {
	server := redistest.Start(t)
	rights := documentedRights(t)
	must(t, server.Client().Do(t.Context(), append([]any{"ACL", "SETUSER", "gate", "on", ">secret", "resetchannels", "-@all"}, rights...)...).Err(), "make the user %v", rights)
	client := testClient(t, server.Addr(), func(o *redis.Options) { o.Username, o.Password = "gate", "secret" })
	for _, lock := range bothStrategies() {
		story(t, testQuota(client, Options{Installation: "a"}), lock)
		server.FlushAll()
	}
}

// story uses every verb of a quota on an empty Redis.
func story(t *testing.T, g *Store, lock *LockSettings) {
	t.Helper()
	ctx, k, l := t.Context(), acme(), Limits{Max: 1, Lock: lock}
	token, err := g.BeginRebuild(ctx, k)
	must(t, errors.Join(err, g.FinishRebuild(ctx, k, token, []string{"old"})), "rebuild")
	_, err = g.Admit(ctx, k, l, run("a", 0, 0))
	must(t, err, "admit")
	_, err = g.Admit(ctx, k, l, run("a", 1, 0))
	must(t, err, "admit with another priority")
	_, err = g.Reserve(ctx, k, Limits{Max: 9, Lock: lock}, run("r", 0, 0), time.Minute)
	must(t, err, "reserve")
	_, err = g.Reserve(ctx, k, l, run("r", 0, 0), time.Minute)
	must(t, err, "reserve in vain")
	_, err = g.Release(ctx, k, l, "old")
	must(t, err, "release")
	must(t, g.Restore(ctx, k, []string{"b"}), "restore")
	next, err := g.Drop(ctx, k, Limits{Max: 1}, []string{"b"})
	if len(next) != 1 || next[0].UID != "a" {
		t.Errorf("next are %v; want a", next)
	}
	must(t, err, "drop")
	_, err = g.Snapshot(ctx, k)
	must(t, err, "book")
	token, err = g.BeginRebuildKeys(ctx, k.Tenant)
	must(t, errors.Join(err, g.FinishRebuildKeys(ctx, k.Tenant, token, map[string]Claim{"key": {UID: "u"}})), "rebuild keys")
	_, err = g.ClaimKey(ctx, k.Tenant, "key", Claim{UID: "v"})
	must(t, errors.Join(err, g.ReleaseKey(ctx, k.Tenant, "key", "u")), "claim and yield")
	_, err = g.Claims(ctx, k.Tenant)
	must(t, err, "claims")
	_, err = Retire(ctx, g, k)
	must(t, err, "retire")
	_, err = Retire(ctx, g, Key{Tenant: k.Tenant})
	must(t, err, "retire keys")
}
