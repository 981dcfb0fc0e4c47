// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// badStore is a Redis that a client cannot use as it is set up.
type badStore struct {
	config ClientConfig
	admin  *redis.Client // looks at the server's figures; nil: it was never reached
}

// onlyTLS are servers that speak TLS; handshakes fail before it matters that they are no Redis.
func onlyTLS(t *testing.T, config *tls.Config) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = config
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func adminOf(t *testing.T, s *redistest.Server, password string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: password})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// replica waits until a replica of another server is in step with it.
func replica(t *testing.T) *redistest.Server {
	t.Helper()
	host, port, _ := strings.Cut(redistest.Start(t, "--repl-diskless-sync-delay", "0").Addr(), ":")
	s := redistest.Start(t, "--replicaof", host, port)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for c := s.Client(); !strings.Contains(c.Info(ctx, "replication").Val(), "master_link_status:up"); {
		if ctx.Err() != nil {
			t.Fatal("the replica does not find its master")
		}
	}
	return s
}

// asked is how often a command was sent to the server, whether it was done or refused.
func asked(t *testing.T, admin *redis.Client, commands ...string) int {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(info) {
		for _, command := range commands {
			figures, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_"+command+":")
			if !ok {
				continue
			}
			for figure := range strings.SplitSeq(figures, ",") {
				name, value, _ := strings.Cut(figure, "=")
				if n, err := strconv.Atoi(value); err == nil && (name == "calls" || name == "rejected_calls") {
					sum += n
				}
			}
		}
	}
	return sum
}

// The words are the cause that a user reads in the condition; each call ends in bounded time, and
// is one try: a script is sent by its hash, and once more in full where Redis does not know it.
//
// mutation: Acquire that does not explain its cause, or a client with go-redis's default
// MaxRetries, makes this fail.
func TestStoresThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	const tries = 2
	at := func(s *redistest.Server, change func(*ClientConfig)) badStore {
		config := ClientConfig{Addrs: []string{s.Addr()}}
		if change != nil {
			change(&config)
		}
		return badStore{config: config, admin: s.Client()}
	}
	withTLS := func(s *httptest.Server, config *tls.Config) badStore {
		store := badStore{config: ClientConfig{Addrs: []string{s.Listener.Addr().String()}}}
		if config != nil {
			store.config.TLS = func() (*tls.Config, error) { return config, nil }
		}
		return store
	}
	trusting := func(s *httptest.Server) *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AddCert(s.Certificate())
		return pool
	}
	tests := map[string]struct {
		store func(t *testing.T) badStore
		want  string
	}{
		"no password": {func(t *testing.T) badStore {
			s := redistest.Start(t, "--requirepass", "secret")
			return badStore{ClientConfig{Addrs: []string{s.Addr()}}, adminOf(t, s, "secret")}
		}, "Redis refuses the login: check user and password"},
		"a wrong password": {func(t *testing.T) badStore {
			s := redistest.Start(t, "--requirepass", "secret")
			return badStore{ClientConfig{Addrs: []string{s.Addr()}, Password: "wrong"}, adminOf(t, s, "secret")}
		}, "Redis refuses the login: check user and password"},
		"a user without rights": {func(t *testing.T) badStore {
			s := redistest.Start(t, "--user", "locks", "on", ">secret", "+@connection")
			return at(s, func(c *ClientConfig) { c.Username, c.Password = "locks", "secret" })
		}, "the ACL of the Redis user lacks a right"},
		"a user who may not do what the scripts do": {func(t *testing.T) badStore {
			s := redistest.Start(t, "--user", "locks", "on", ">secret", "~*", "&*", "+@connection", "+@pubsub", "+eval", "+evalsha")
			return at(s, func(c *ClientConfig) { c.Username, c.Password = "locks", "secret" })
		}, "the ACL of the Redis user lacks a right"},
		"a replica": {func(t *testing.T) badStore { return at(replica(t), nil) }, "the addresses point at a replica"},
		"a node of a cluster without slots": {func(t *testing.T) badStore {
			return at(redistest.Start(t, "--cluster-enabled", "yes"), nil)
		}, "the Redis Cluster does not serve all slots"},
		"a single server, as a cluster": {func(t *testing.T) badStore {
			return at(redistest.Start(t), func(c *ClientConfig) { c.Cluster = true })
		}, "the addresses are of a single Redis, but the client is set up for Redis Cluster"},
		"a single server, as a sentinel": {func(t *testing.T) badStore {
			return at(redistest.Start(t), func(c *ClientConfig) { c.MasterName = "locks" })
		}, "no sentinel names the master"},
		"a server without TLS": {func(t *testing.T) badStore {
			return at(redistest.Start(t), func(c *ClientConfig) { c.TLS = Files{TLS: true}.tls })
		}, "TLS"}, // Redis waits for the end of a command, or answers in plain text
		"too few replicas": {func(t *testing.T) badStore {
			return at(redistest.Start(t, "--min-replicas-to-write", "1"), nil)
		}, "Redis refuses writes because too few of its replicas"},
		"a server that hangs": {func(t *testing.T) badStore {
			s := redistest.Start(t)
			s.Pause()
			return badStore{config: ClientConfig{Addrs: []string{s.Addr()}}}
		}, "Redis does not answer in time"},
		"a certificate of an unknown CA": {func(t *testing.T) badStore {
			return withTLS(onlyTLS(t, nil), &tls.Config{MinVersion: tls.VersionTLS12})
		}, "the certificate of Redis cannot be verified"},
		"a certificate of another host": {func(t *testing.T) badStore {
			s := onlyTLS(t, nil)
			return withTLS(s, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusting(s), ServerName: "redis.other.test"})
		}, "the certificate of Redis cannot be verified"},
		"no client certificate": {func(t *testing.T) badStore {
			s := onlyTLS(t, &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert})
			return withTLS(s, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusting(s)})
		}, "Redis refuses the TLS connection"},
		"no TLS where the server wants it": {func(t *testing.T) badStore { return withTLS(onlyTLS(t, nil), nil) }, "TLS"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := test.store(t)
			client, err := NewClient(store.config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			m := manager(t, client)
			r := steady()
			r.Policy.Renewal.Timeout = time.Second
			r.Wake = func() {}
			started := time.Now()
			for range tries {
				<-time.After(mustBeUnavailable(t, m, r, test.want))
			}
			if store.admin == nil {
				return
			}
			if n := asked(t, store.admin, "evalsha", "eval"); n > 2*tries {
				t.Errorf("%d scripts were sent for %d tries", n, tries)
			}
			// The subscription connects anew about ten times a second, with a command or two; a
			// loop would do so thousands of times.
			most := 20 + int(100*time.Since(started).Seconds())
			if n := asked(t, store.admin, "auth", "hello", "subscribe", "cluster|slots", "cluster|shards", "sentinel"); n > most {
				t.Errorf("%d other commands were sent, more than %d", n, most)
			}
		})
	}
}

// mustBeUnavailable tries to take a lock, in vain, and returns when to try again.
func mustBeUnavailable(t *testing.T, m *Manager, r Request, cause string) time.Duration {
	t.Helper()
	started := time.Now()
	_, err := m.Acquire(t.Context(), r)
	unavailable, ok := errors.AsType[*UnavailableError](err)
	if !ok || !strings.Contains(err.Error(), cause) {
		t.Fatalf("acquire: %v; want unavailable, because %q", err, cause)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("that took %s; want a second or so", took)
	}
	if delay := unavailable.RetryDelay(); delay < 500*time.Millisecond {
		t.Errorf("the next try is due in %s; want a second or so", delay)
	}
	return unavailable.RetryDelay()
}
