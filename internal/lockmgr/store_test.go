package lockmgr

import (
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

func TestConformanceOfRedis(t *testing.T) {
	client := newTestClient(t, redistest.Start(t).Addr())
	locktest.Run(t, func(t *testing.T) locktest.Fixture {
		return locktest.RedisFixture(t, newRedisStore(client), client)
	})
}

func TestConformanceOfTheEmbeddedStandIn(t *testing.T) {
	client := newTestClient(t, miniredis.RunT(t).Addr())
	locktest.Run(t, func(t *testing.T) locktest.Fixture {
		return locktest.RedisFixture(t, newRedisStore(client), client)
	})
}

func TestConformanceOfTheModel(t *testing.T) {
	locktest.Run(t, func(*testing.T) locktest.Fixture {
		clk := clocktesting.NewFakeClock(time.Unix(0, 0))
		s := newModelStore(clk.Now)
		return locktest.Fixture{
			Store:   s,
			Advance: func(_ testing.TB, d time.Duration) { clk.Step(d) },
			Flush:   func(testing.TB) { s.flush() },
		}
	})
}

func TestKeysOfARunAreInOneSlotAndEnd(t *testing.T) {
	server := miniredis.RunT(t)
	if _, _, err := newRedisStore(newTestClient(t, server.Addr())).Acquire(t.Context(), "b2c5", "token", "", 0, 30*time.Second); err != nil {
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
