// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
)

const (
	// Admin may do everything, also for replicas and sentinels.
	Admin, adminPassword = "admin", "all-rights"
	// SentinelPassword logs in to sentinels.
	SentinelPassword = "watchers"
	// MasterName is what sentinels call their master.
	MasterName = "locks"

	setPatience = 3 * time.Minute // the machine may be busy
	setPoll     = 50 * time.Millisecond
	// downAfter is after how long without an answer sentinels, and nodes of a cluster, take one
	// for down, in milliseconds.
	downAfter = 1500
)

// Login is a user with its rights as an ACL has them.
type Login struct {
	Name, Password string
	Rights         []string
}

// Host is what all servers of a set have in common; the zero Host: plain text, as they are.
type Host struct {
	TLS *certs.Files // nil: plain text
	Env []string     // more variables of their environment
}

// set are servers that belong together.
type set struct {
	t     testing.TB
	Nodes []*Server
	host  Host
	users []Login
}

// startNodes starts servers that take no one without a password.
func (s *set) startNodes(n int, args ...string) {
	s.t.Helper()
	for range n {
		node := newServer(s.t)
		node.tls, node.env, node.adminUser, node.adminPassword = s.host.TLS, s.host.Env, Admin, adminPassword
		acl := filepath.Join(node.dir, "users.acl")
		lines := []string{"user default off", "user " + Admin + " on >" + adminPassword + " ~* &* +@all"}
		for _, u := range s.users {
			lines = append(lines, "user "+u.Name+" on >"+u.Password+" "+strings.Join(u.Rights, " "))
		}
		if err := os.WriteFile(acl, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			s.t.Fatal(err)
		}
		node.args = append([]string{"--aclfile", acl, "--masteruser", Admin, "--masterauth", adminPassword, "--repl-diskless-sync-delay", "0"}, args...)
		node.begin()
		s.Nodes = append(s.Nodes, node)
	}
}

// Addrs are those of all servers, with commas between.
func (s *set) Addrs() string { return addrs(s.Nodes) }

func addrs(servers []*Server) string {
	all := make([]string, len(servers))
	for i, n := range servers {
		all[i] = n.Addr()
	}
	return strings.Join(all, ",")
}

// running are the servers that were not killed.
func (s *set) running() (all []*Server) {
	for _, n := range s.Nodes {
		if n.cmd != nil {
			all = append(all, n)
		}
	}
	return all
}

// SetPassword gives a user another password on all servers that run. The one before is gone.
func (s *set) SetPassword(user, password string) {
	s.t.Helper()
	for _, n := range s.running() {
		c := n.admin()
		ctx := context.WithoutCancel(s.t.Context())
		if err := c.Do(ctx, "ACL", "SETUSER", user, "resetpass", ">"+password).Err(); err != nil {
			s.t.Fatalf("set password: %v", err)
		}
		if err := c.Do(ctx, "ACL", "SAVE").Err(); err != nil {
			s.t.Fatalf("save passwords: %v", err)
		}
	}
}

// KillClients ends all connections of a user.
func (s *set) KillClients(user string) {
	s.t.Helper()
	for _, n := range s.running() {
		if err := n.admin().Do(context.WithoutCancel(s.t.Context()), "CLIENT", "KILL", "USER", user).Err(); err != nil {
			s.t.Fatalf("kill clients: %v", err)
		}
	}
}

// ReloadCertificates has servers read their files again.
func (s *set) ReloadCertificates() {
	s.t.Helper()
	s.configure(func(n *Server) []any { return []any{"tls-cert-file", n.tls.Cert, "tls-key-file", n.tls.Key} })
}

// ReloadAuthorities has servers read whom they trust again.
func (s *set) ReloadAuthorities() {
	s.t.Helper()
	s.configure(func(n *Server) []any { return []any{"tls-ca-cert-file", n.tls.CA} })
}

func (s *set) configure(of func(n *Server) []any) {
	s.t.Helper()
	for _, n := range s.running() {
		if err := n.admin().Do(context.WithoutCancel(s.t.Context()), append([]any{"CONFIG", "SET"}, of(n)...)...).Err(); err != nil {
			s.t.Fatalf("read files again: %v", err)
		}
	}
}

// RestartReplica starts a replica anew; it reads its files, and is in step again.
func (s *Sentinel) RestartReplica() {
	s.t.Helper()
	master := s.Master()
	for _, n := range s.running() {
		if n != master {
			n.Restart()
			s.await("the replica is in step", func(ctx context.Context) bool {
				return strings.Contains(n.admin().Info(ctx, "replication").Val(), "master_link_status:up")
			})
			return
		}
	}
	s.t.Fatal("no replica runs")
}

// One is a server by itself.
type One struct{ set }

// StartOne runs it until the test ends.
func StartOne(t testing.TB, host Host, users ...Login) *One {
	t.Helper()
	s := &One{set{t: t, host: host, users: users}}
	s.startNodes(1)
	return s
}

// Do sends a command to every server that runs.
func (s *set) Do(command ...any) {
	s.t.Helper()
	for _, n := range s.running() {
		if err := n.admin().Do(context.WithoutCancel(s.t.Context()), command...).Err(); err != nil {
			s.t.Fatalf("%v: %v", command, err)
		}
	}
}

// Sentinel is a master, two replicas, and three sentinels.
type Sentinel struct {
	set
	Sentinels []*Server
}

// StartSentinel runs them until the test ends.
func StartSentinel(t testing.TB, host Host, users ...Login) *Sentinel {
	t.Helper()
	s := &Sentinel{set: set{t: t, host: host, users: users}}
	s.startNodes(1)
	master := s.Nodes[0]
	s.startNodes(2, "--replicaof", "127.0.0.1", strconv.Itoa(master.port))
	for range 3 {
		s.Sentinels = append(s.Sentinels, s.startSentinel(master))
	}
	s.await("each replica is in step", func(ctx context.Context) bool {
		return strings.Count(master.admin().Info(ctx, "replication").Val(), "state=online") == 2
	})
	s.await("the sentinels know each other and the replicas", func(ctx context.Context) bool {
		for _, w := range s.Sentinels {
			info := s.sentinelClient(w).Master(ctx, MasterName).Val()
			if info["num-other-sentinels"] != "2" || info["num-slaves"] != "2" {
				return false
			}
		}
		return true
	})
	return s
}

func (s *Sentinel) startSentinel(master *Server) *Server {
	s.t.Helper()
	w := newServer(s.t)
	w.tls, w.env, w.adminPassword = s.host.TLS, s.host.Env, SentinelPassword
	w.sentinel = filepath.Join(w.dir, "sentinel.conf")
	config := fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]d 2
sentinel down-after-milliseconds %[1]s %[3]d
sentinel failover-timeout %[1]s 6000
sentinel auth-user %[1]s %[4]s
sentinel auth-pass %[1]s %[5]s
requirepass %[6]s
sentinel sentinel-pass %[6]s
`, MasterName, master.port, downAfter, Admin, adminPassword, SentinelPassword)
	if err := os.WriteFile(w.sentinel, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	w.begin()
	return w
}

// RestartSentinels is what a clock that was ahead takes. Sentinel goes by the wall clock: a
// fail-over within a minute after one that was a minute ahead took 57 s, and 5 s after a restart.
func (s *Sentinel) RestartSentinels() {
	s.t.Helper()
	for _, w := range s.Sentinels {
		w.Restart()
	}
}

func (s *Sentinel) sentinelClient(w *Server) *redis.SentinelClient {
	if w.watch == nil {
		w.watch = redis.NewSentinelClient(w.options())
		s.t.Cleanup(func() { _ = w.watch.Close() })
	}
	return w.watch
}

// SentinelAddrs are those of the sentinels.
func (s *Sentinel) SentinelAddrs() string { return addrs(s.Sentinels) }

// Master is the server that the first sentinel names.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	at := s.masterAddr(context.WithoutCancel(s.t.Context()), s.sentinelClient(s.Sentinels[0]))
	for _, n := range s.Nodes {
		if n.Addr() == at {
			return n
		}
	}
	s.t.Fatalf("no server is the master %s", at)
	return nil
}

func (s *Sentinel) masterAddr(ctx context.Context, c *redis.SentinelClient) string {
	return strings.Join(c.GetMasterAddrByName(ctx, MasterName).Val(), ":")
}

// LoseLastWrites has the master tell its replicas nothing while f runs, then kills it, and waits
// until another is the master. The old one stays down.
func (s *Sentinel) LoseLastWrites(f func()) (old *Server) {
	s.t.Helper()
	old = s.Master()
	ctx, c := context.WithoutCancel(s.t.Context()), old.admin()
	for _, command := range [][]any{
		{"ACL", "SETUSER", Admin, "-psync", "-sync"},
		{"CLIENT", "KILL", "TYPE", "REPLICA"},
	} {
		if err := c.Do(ctx, command...).Err(); err != nil {
			s.t.Fatalf("cut the replicas off: %v: %v", command, err)
		}
	}
	f()
	old.Stop()
	s.AwaitOtherMaster(old)
	return old
}

// AwaitOtherMaster waits until all sentinels name another master, and it takes writes.
func (s *Sentinel) AwaitOtherMaster(old *Server) {
	s.t.Helper()
	s.await("another server is the master", func(ctx context.Context) bool {
		for _, w := range s.Sentinels {
			if at := s.masterAddr(ctx, s.sentinelClient(w)); at == "" || at == old.Addr() {
				return false
			}
		}
		return strings.Contains(s.Master().admin().Info(ctx, "replication").Val(), "role:master")
	})
}

// AwaitReplicas waits until the master has so many replicas.
func (s *Sentinel) AwaitReplicas(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d replicas are in step", n), func(ctx context.Context) bool {
		return strings.Count(s.Master().admin().Info(ctx, "replication").Val(), "state=online") >= n
	})
}

func (s *set) await(what string, done func(ctx context.Context) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), setPatience)
	defer cancel()
	tick := time.NewTicker(setPoll)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			s.t.Fatalf("not within %s: %s", setPatience, what)
		case <-tick.C:
		}
	}
}
