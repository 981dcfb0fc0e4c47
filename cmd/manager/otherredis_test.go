// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	coordinationv1 "k8s.io/api/coordination/v1"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// A rolling update that changes --redis-addrs: the new replica is not ready, so the update goes no
// further, and it has no part in anything until those with the Redis of before are gone.
//
// mutations: newAgreement that is nil, newGate that does not give it or the record to the store, or
// newOwner that does not give it to the Keeper, make this fail.
func TestARollingUpdateToAnotherRedisStopsAtItsFirstReplica(t *testing.T) {
	s := newSite(t)
	other := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: other.Addr()})
	defer func() { _ = client.Close() }()
	noted := func() (name, since string) {
		var l coordinationv1.Lease
		if err := s.k8s.Get(t.Context(), ctrl.ObjectKey{Namespace: devenv.OperatorNamespace, Name: ownership.RecordName}, &l); err != nil {
			t.Log(err)
		}
		return l.Annotations[ownership.RedisAnnotation], l.Annotations[ownership.RedisSinceAnnotation]
	}
	owned := func(m *devenv.Manager) float64 {
		if f := s.scrape(m, "syncopate_partitions_owned"); len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
		return -1
	}
	serving := func(m *devenv.Manager) (text string, ready bool) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.Probes+"/readyz?serving", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error(), false // it has not begun to listen
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body), resp.StatusCode == http.StatusOK
	}

	start := func(name string, args ...string) *devenv.Manager {
		m, err := s.env.StartManager(t.Context(), s.binary, name, append([]string{"--leader-elect=true", "--ownership=shards"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Kill(); err != nil {
				t.Error(err)
			}
			if log, err := os.ReadFile(m.Log); err == nil && t.Failed() {
				t.Logf("log of %s:\n%s", name, log)
			}
		})
		return m
	}
	first := start("first")
	s.eventually("the first is ready", func() bool { _, ready := serving(first); return ready })
	s.eventually("the first owns all", func() bool { return owned(first) == 65 })
	second := start("second", "--redis-addrs", other.Addr())
	s.eventually("the second says why it is not ready", func() bool {
		text, ready := serving(second)
		if ready {
			t.Fatalf("it is ready with another Redis:\n%s", text)
		}
		return strings.Contains(text, "[-]redis failed: this Redis is not the one that the other replicas use") && strings.Contains(text, "[+]ownership ok")
	})
	if a, b := owned(first), owned(second); a != 65 || b != 0 {
		t.Errorf("the first owns %v, and the second %v", a, b)
	}
	if named, err := client.Exists(t.Context(), "{adm-installation}:name").Result(); err != nil || named != 0 {
		t.Errorf("the second has named its Redis (%v)", err)
	}
	before, since := noted()
	if before == "" || since == "" {
		t.Errorf("it is noted that %q is used since %q", before, since)
	}
	if err := first.Terminate(t.Context()); err != nil {
		t.Error(err)
	}
	s.eventually("the second owns all", func() bool { return owned(second) == 65 })
	s.eventually("it is ready", func() bool { _, ready := serving(second); return ready })
	s.eventually("it is noted which one is used now", func() bool { name, _ := noted(); return name != before })
	if name, _ := noted(); name != client.Get(t.Context(), "{adm-installation}:name").Val() {
		t.Errorf("%q is noted", name)
	}
}
