// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestNewClient(t *testing.T) {
	tests := map[string]struct {
		config ClientConfig
		is     func(c redis.UniversalClient) bool
	}{
		"one address is a server": {
			ClientConfig{Addrs: []string{"127.0.0.1:1"}},
			func(c redis.UniversalClient) bool { _, ok := c.(*redis.Client); return ok },
		},
		"a master name is Sentinel": {
			ClientConfig{Addrs: []string{"127.0.0.1:1"}, MasterName: "locks"},
			func(c redis.UniversalClient) bool {
				r, ok := c.(*redis.Client)
				return ok && r.Options().Addr == "FailoverClient"
			},
		},
		"two addresses are a cluster": {
			ClientConfig{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}},
			func(c redis.UniversalClient) bool { _, ok := c.(*redis.ClusterClient); return ok },
		},
		"one address of a cluster": {
			ClientConfig{Addrs: []string{"127.0.0.1:1"}, Cluster: true},
			func(c redis.UniversalClient) bool { _, ok := c.(*redis.ClusterClient); return ok },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := NewClient(test.config)
			if err != nil {
				t.Fatal(err)
			}
			if !test.is(c) {
				t.Errorf("the client is a %T", c)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("no address is an error", func(t *testing.T) {
		if _, err := NewClient(ClientConfig{}); err == nil {
			t.Error("no error")
		}
	})
}

func TestClientSettings(t *testing.T) {
	o := ClientConfig{Addrs: []string{"127.0.0.1:1"}, Username: "locks", Password: "secret"}.options()
	c := redis.NewUniversalClient(o)
	defer func() { _ = c.Close() }()
	single, ok := c.(*redis.Client)
	if !ok {
		t.Fatalf("the client is a %T", c)
	}
	got := single.Options()
	if !got.ContextTimeoutEnabled || got.MaxRetries != 0 { // go-redis turns -1 into 0 retries
		t.Errorf("ContextTimeoutEnabled %v, MaxRetries %d", got.ContextTimeoutEnabled, got.MaxRetries)
	}
	for name, timeout := range map[string]time.Duration{"dial": got.DialTimeout, "read": got.ReadTimeout, "write": got.WriteTimeout, "pool": got.PoolTimeout} {
		if timeout != time.Second {
			t.Errorf("%s timeout is %s; want 1 s", name, timeout)
		}
	}
	if got.ConnMaxIdleTime != time.Minute {
		t.Errorf("a connection may be idle for %s; want a minute", got.ConnMaxIdleTime)
	}
	if got.Username != "locks" || got.Password != "secret" || got.PoolSize != 64 {
		t.Errorf("user %s, pool %d", got.Username, got.PoolSize)
	}
}

// locks.md promises it for each connection.
//
// mutation: tls with an older version.
func TestRedisIsSpokenToByTLSOfTodayOnly(t *testing.T) {
	config, err := Files{TLS: true}.tls()
	if err != nil || config.MinVersion < tls.VersionTLS12 {
		t.Errorf("at least %s, %v", tls.VersionName(config.MinVersion), err)
	}
}
