// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/locktest"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

func newTestClient(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c, err := NewClient(ClientConfig{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// underTest is a store in the terms of the suite.
type underTest struct{ store }

// Acquire implements locktest.Store.
func (s underTest) Acquire(ctx context.Context, c locktest.Claim) (locktest.Grant, error) {
	got, err := s.store.Acquire(ctx, claim{
		runUID: c.RunUID, token: c.Token, supersedes: c.Supersedes, floor: c.Floor, ttl: c.TTL, process: c.Process,
	})
	offered := got.offered
	if offered > offerTime/2 {
		offered = offerTime // some milliseconds of it are over
	}
	return locktest.Grant{Fence: got.fence, Others: got.others, Queued: got.queued, Offered: offered, Owner: got.owner, Left: got.left}, err
}

// Listen implements locktest.Store.
func (s underTest) Listen(ctx context.Context, process string, hear func(news, runUID string)) {
	s.store.Listen(ctx, process, func(n news, runUID string) {
		if n != newsBegin {
			hear(string(n), runUID)
		}
	})
}

func TestConformanceOfRedis(t *testing.T) {
	client := newTestClient(t, redistest.Start(t).Addr())
	locktest.Run(t, func(t *testing.T) locktest.Fixture {
		return locktest.RedisFixture(t, underTest{newRedisStore(client)}, client)
	})
}

func TestConformanceOfTheEmbeddedStandIn(t *testing.T) {
	client := newTestClient(t, miniredis.RunT(t).Addr())
	locktest.Run(t, func(t *testing.T) locktest.Fixture {
		return locktest.RedisFixture(t, underTest{newRedisStore(client)}, client)
	})
}

func TestConformanceOfTheModel(t *testing.T) {
	locktest.Run(t, func(*testing.T) locktest.Fixture {
		clk := clocktesting.NewFakeClock(time.Unix(0, 0))
		s := newModelStore(clk.Now)
		return locktest.Fixture{
			Store:   underTest{s},
			Advance: func(_ testing.TB, d time.Duration) { clk.Step(d) },
			Flush:   func(testing.TB) { s.flush() },
		}
	})
}

func TestKeysOfARunAreInOneSlotAndEnd(t *testing.T) {
	server := miniredis.RunT(t)
	if _, err := newRedisStore(newTestClient(t, server.Addr())).Acquire(t.Context(), claim{runUID: "b2c5", token: "token", ttl: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	got := map[string]time.Duration{}
	for _, key := range server.Keys() {
		got[key] = server.TTL(key)
	}
	want := map[string]time.Duration{"{run:b2c5}:lock": 30 * time.Second, "{run:b2c5}:fence": 7 * 24 * time.Hour}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys and their TTLs (-want +got):\n%s", diff)
	}
}

// Who waited may die, and the run may be over: nobody asks for its queue again.
//
// mutations: acquire without either PEXPIREAT of what waits.
func TestWhatWaitsForARunEndsToo(t *testing.T) {
	server := miniredis.RunT(t)
	s := newRedisStore(newTestClient(t, server.Addr()))
	for _, c := range []claim{{token: "a.1", process: "a"}, {token: "b.1", process: "b"}} {
		c.runUID, c.ttl = "b2c5", 30*time.Second
		if _, err := s.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(server.Keys()); n != 4 {
		t.Errorf("%d keys, want those of the lock, its fence, its queue and the tickets", n)
	}
	for _, key := range server.Keys() {
		if ttl := server.TTL(key); ttl <= 0 || ttl > time.Minute && key != "{run:b2c5}:fence" {
			t.Errorf("%s ends after %s", key, ttl)
		}
	}
}
