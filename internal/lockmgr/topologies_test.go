// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
)

// topologyPatience is for a fail-over on a busy machine. The library's own interval to look at a
// Cluster's slots is longer.
const topologyPatience = 30 * time.Second

// secret is a mounted Secret with the operator's login.
func secret(t *testing.T, entries ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := 0; i < len(entries); i += 2 {
		put(t, dir, entries[i], entries[i+1])
	}
	return dir
}

func put(t *testing.T, dir, entry, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, entry), []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func login(cluster bool) redistest.Login {
	return redistest.Login{Name: "syncopate", Password: "first", Rights: rights.Redis(cluster)}
}

// connect makes a manager whose client is configured as the operator's.
func connect(t *testing.T, config ClientConfig, files Files) *Manager {
	t.Helper()
	if err := files.Apply(&config); err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return manager(t, client)
}

// takes waits until a lock can be taken, and gives it back.
func takes(t *testing.T, m *Manager, run string, floor int64) (fence int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), topologyPatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		r := steady()
		r.RunUID, r.Floor = run, floor
		l, err := m.Acquire(ctx, r)
		if err == nil {
			fence = l.Fence()
			l.Drop(ctx)
			return fence
		}
		if ctx.Err() != nil {
			t.Fatalf("no lock within %s: %v", topologyPatience, err)
		}
	}
}

// mutation: a client that keeps its password, its certificate or its authorities makes this fail;
// so does one that does not log in at the sentinels, and servers or sentinels that do not read the
// authorities before the first certificate of the new one.
func TestLocksOnSentinelWithTLSOutliveAFailOverAndRotations(t *testing.T) {
	t.Parallel()
	old, next := certs.NewAuthority(t), certs.NewAuthority(t)
	servers, mine := old.Issue(time.Hour), old.Issue(time.Hour)
	s := redistest.StartSentinel(t, redistest.Host{TLS: servers}, login(false))
	dir := secret(t, "username", "syncopate", "password", "first", "sentinelPassword", redistest.SentinelPassword)
	m := connect(t, ClientConfig{Addrs: strings.Split(s.SentinelAddrs(), ","), MasterName: redistest.MasterName},
		Files{CA: mine.CA, Cert: mine.Cert, Key: mine.Key, AuthDir: dir})
	before := takes(t, m, testRun, 7)

	s.LoseLastWrites(func() { before = max(before, takes(t, m, testRun, 7)) })
	if after := takes(t, m, testRun, before); after <= before {
		t.Errorf("the fence went from %d to %d", before, after)
	}

	put(t, dir, "password", "second")
	s.SetPassword("syncopate", "second")
	s.KillClients("syncopate")
	takes(t, m, testRun, before)

	// A new authority, by docs/production.md. All trust both before anybody has a certificate of
	// the new one: a server that has read the old one alone refuses clients, and other servers.
	trustAll := func(first *certs.Authority, others ...*certs.Authority) {
		first.Trust(mine, others...)
		first.Trust(servers, others...)
		s.ReloadAuthorities()
		s.RestartSentinels()
		s.KillClients("syncopate")
		takes(t, m, testRun, before)
	}
	trustAll(old, next)
	next.Renew(mine, time.Hour, old) // servers have their old certificates, in memory and in files
	s.KillClients("syncopate")
	takes(t, m, testRun, before)
	next.Renew(servers, time.Hour, old)
	s.RestartReplica() // with the new one, at a master with the old one
	takes(t, m, testRun, before)
	s.ReloadCertificates()
	s.RestartSentinels()
	s.KillClients("syncopate")
	takes(t, m, testRun, before)
	trustAll(next)
}

// mutation: a client that is set up for a single server makes this fail, and so does one that reads
// the map of slots once a minute.
func TestLocksOnAClusterOutliveALostShardAndASlotThatMoves(t *testing.T) {
	t.Parallel()
	ca := certs.NewAuthority(t)
	mine := ca.Issue(time.Hour)
	c := redistest.StartCluster(t, redistest.Host{TLS: ca.Issue(time.Hour)}, login(true))
	m := connect(t, ClientConfig{Addrs: []string{c.Nodes[0].Addr()}, Cluster: true},
		Files{CA: mine.CA, Cert: mine.Cert, Key: mine.Key, AuthDir: secret(t, "username", "syncopate", "password", "first")})
	runs := []string{"run-a", "run-b", "run-c", "run-d", "run-e", "run-f"}
	fences := map[string]int64{}
	for _, run := range runs {
		fences[run] = takes(t, m, run, 0)
	}
	for _, run := range runs {
		c.MoveSlot(key(run, "lock"))
		if next := takes(t, m, run, fences[run]); next <= fences[run] {
			t.Errorf("the fence of %s went from %d to %d", run, fences[run], next)
		} else {
			fences[run] = next
		}
	}
	c.Nodes[1].Stop()
	for _, run := range runs {
		if next := takes(t, m, run, fences[run]); next <= fences[run] {
			t.Errorf("the fence of %s went from %d to %d", run, fences[run], next)
		}
	}
}
