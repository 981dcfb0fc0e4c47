// SPDX-License-Identifier: Apache-2.0

package locktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Store is the store under test: the verbs of internal/lockmgr's store.
type Store interface {
	Acquire(ctx context.Context, c Claim) (Grant, error)
	Renew(ctx context.Context, runUID, token string, ttl time.Duration) (owner bool, err error)
	Release(ctx context.Context, runUID, token string) (owner bool, err error)
	Leave(ctx context.Context, runUID, process string) error
	// Listen passes on the news for a process until ctx ends.
	Listen(ctx context.Context, process string, hear func(news, runUID string))
}

// Claim asks for a lock, as internal/lockmgr's claim does.
type Claim struct {
	RunUID, Token, Supersedes string
	Floor                     int64
	TTL                       time.Duration
	Process                   string // waits in the queue; empty: nobody
}

// Grant is the answer, as internal/lockmgr's grant is.
type Grant struct {
	Fence   int64 // 0: busy
	Others  bool
	Queued  bool
	Offered time.Duration
	Owner   string // compared only where a test says so, as Left
	Left    time.Duration
}

// Fixture is an empty store with the means to move its time and to lose its data.
type Fixture struct {
	Store
	// Advance lets d pass for the store.
	Advance func(t testing.TB, d time.Duration)
	// Flush loses all data.
	Flush func(t testing.TB)
}

const (
	uid = "b2c5"
	ttl = 30 * time.Second
)

// Run runs the suite. fresh makes an empty store for each test.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	t.Helper()
	for _, tests := range []map[string]func(*scene){suite(), queueSuite()} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) { test(&scene{Fixture: fresh(t), t: t}) })
		}
	}
}

func suite() map[string]func(*scene) {
	return map[string]func(*scene){
		// mutation: acquire.lua without the comparison with the owner makes this fail.
		"a lock that is held is busy for another token": func(s *scene) {
			s.takes("a", 0, 1)
			s.isBusy("b", 0)
			s.renews("a", true)
		},
		// mutation: acquire.lua that calls INCR for the owner too makes this fail.
		"a token that owns the lock takes it again with the same fence": func(s *scene) {
			s.takes("a", 4, 5)
			s.takes("a", 4, 5)
			s.releases("a", true)
			s.takes("b", 4, 6)
		},
		// mutation: acquire.lua without SET ... PX for the owner makes this fail.
		"taking it again starts the TTL anew": func(s *scene) {
			s.takes("a", 0, 1)
			s.Advance(s.t, ttl*2/3)
			s.takes("a", 0, 1)
			s.Advance(s.t, ttl*2/3)
			s.isBusy("b", 0)
		},
		"a token that owns the lock gets a higher fence when the floor went past its own": func(s *scene) {
			s.takes("a", 0, 1)
			s.takes("a", 7, 8)
		},
		"fences rise by take": func(s *scene) {
			for fence := int64(1); fence <= 3; fence++ {
				s.takes("a", 0, fence)
				s.releases("a", true)
			}
		},
		// mutation: acquire.lua without max(INCR, floor+1) makes this fail.
		"the fence is above the floor, and stays there": func(s *scene) {
			s.takes("a", 41, 42)
			s.releases("a", true)
			s.takes("b", 0, 43)
		},
		"the fence is above the floor after all data was lost": func(s *scene) {
			s.takes("a", 9, 10)
			s.Flush(s.t)
			s.renews("a", false)
			s.takes("b", 10, 11)
			s.isBusy("a", 10)
		},
		"large fences are exact": func(s *scene) {
			const large = 1<<53 - 3
			s.takes("a", large, large+1)
			s.releases("a", true)
			s.takes("b", large, large+2)
		},
		"the lock is free when its TTL is over": func(s *scene) {
			s.takes("a", 0, 1)
			s.Advance(s.t, ttl-time.Second)
			s.isBusy("b", 0)
			s.Advance(s.t, time.Second)
			s.takes("b", 0, 2)
			s.renews("a", false)
		},
		"a renewal starts the TTL anew": func(s *scene) {
			s.takes("a", 0, 1)
			s.Advance(s.t, ttl-time.Second)
			s.renews("a", true)
			s.Advance(s.t, ttl-time.Second)
			s.isBusy("b", 0)
		},
		"a renewal does not bring a free lock back": func(s *scene) {
			s.renews("a", false)
			s.takes("b", 0, 1)
		},
		// mutation: release.lua without the comparison makes this fail.
		"a late release does not free a newer owner's lock": func(s *scene) {
			s.takes("a", 0, 1)
			s.Advance(s.t, ttl)
			s.takes("b", 0, 2)
			s.releases("a", false)
			s.isBusy("c", 0)
			s.renews("b", true)
		},
		"a release may be repeated": func(s *scene) {
			s.takes("a", 0, 1)
			s.releases("a", true)
			s.releases("a", false)
		},
		"a token that is superseded loses the lock to a higher fence": func(s *scene) {
			s.takes("a", 0, 1)
			s.supersedes("b", "a", 2)
			s.renews("a", false)
			s.releases("a", false)
			s.isBusy("c", 0)
		},
		// mutation: acquire.lua that leaves out the PTTL makes this fail.
		"who is refused hears whose lock it is, and when it ends": func(s *scene) {
			s.takes("a", 0, 1)
			s.Advance(s.t, ttl/2)
			got, err := s.Acquire(s.t.Context(), Claim{RunUID: uid, Token: "b", TTL: ttl, Process: "p1"})
			if err != nil || got.Fence != 0 || !got.Queued || got.Owner != "a" || got.Left <= ttl/4 || got.Left > ttl/2 {
				s.t.Errorf("acquire: %+v, %v; want busy, of a, for %s", got, err, ttl/2)
			}
		},
		"no other token is superseded": func(s *scene) {
			s.takes("a", 0, 1)
			if got, err := s.Acquire(s.t.Context(), Claim{RunUID: uid, Token: "b", Supersedes: "c", TTL: ttl}); got.Fence != 0 || err != nil {
				s.t.Errorf("acquire: %+v, %v; want busy", got, err)
			}
		},
		"runs have locks and fences of their own": func(s *scene) {
			s.takes("a", 0, 1)
			if got, err := s.Acquire(s.t.Context(), Claim{RunUID: "other", Token: "b", TTL: ttl}); got.Fence != 1 || err != nil {
				s.t.Errorf("acquire of another run: %+v, %v; want fence 1", got, err)
			}
		},
		"one of many takes at once wins": (*scene).oneWins,
	}
}

// scene is one test of the suite.
type scene struct {
	Fixture
	t *testing.T
}

func (s *scene) takes(token string, floor, want int64) {
	s.t.Helper()
	s.gets(Claim{Token: token, Floor: floor}, Grant{Fence: want})
}

func (s *scene) supersedes(token, old string, want int64) {
	s.t.Helper()
	s.gets(Claim{Token: token, Supersedes: old}, Grant{Fence: want})
}

func (s *scene) isBusy(token string, floor int64) {
	s.t.Helper()
	s.gets(Claim{Token: token, Floor: floor}, Grant{})
}

// gets claims the lock and fails the test unless the answer is as wanted.
func (s *scene) gets(c Claim, want Grant) {
	s.t.Helper()
	c.RunUID, c.TTL = uid, ttl
	got, err := s.Acquire(s.t.Context(), c)
	got.Owner, got.Left = "", 0
	if got != want || err != nil {
		s.t.Fatalf("acquire by %s: %+v, %v; want %+v", c.Token, got, err, want)
	}
}

func (s *scene) renews(token string, want bool) {
	s.t.Helper()
	if owner, err := s.Renew(s.t.Context(), uid, token, ttl); owner != want || err != nil {
		s.t.Fatalf("renewal by %s: owner %v, %v; want owner %v", token, owner, err, want)
	}
}

func (s *scene) releases(token string, want bool) {
	s.t.Helper()
	if owner, err := s.Release(s.t.Context(), uid, token); owner != want || err != nil {
		s.t.Fatalf("release by %s: owner %v, %v; want owner %v", token, owner, err, want)
	}
}

func (s *scene) oneWins() {
	const contenders = 50
	wins := make(chan int64, contenders)
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() {
			got, err := s.Acquire(s.t.Context(), Claim{RunUID: uid, Token: fmt.Sprintf("token-%d", i), TTL: ttl})
			if err != nil {
				s.t.Errorf("acquire: %v", err)
			}
			if got.Fence > 0 {
				wins <- got.Fence
			}
		})
	}
	all.Wait()
	if len(wins) != 1 {
		s.t.Errorf("%d of %d contenders took the lock; want 1", len(wins), contenders)
	}
}

// RedisFixture is a Fixture on a Redis, which is emptied. Time passes by shortening the TTL
// of every key.
func RedisFixture(t testing.TB, s Store, client redis.UniversalClient) Fixture {
	t.Helper()
	f := Fixture{
		Store:   s,
		Advance: func(t testing.TB, d time.Duration) { t.Helper(); shortenTTLs(t, client, d) },
		Flush: func(t testing.TB) {
			t.Helper()
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatalf("flush: %v", err)
			}
		},
	}
	f.Flush(t)
	return f
}

// shortenTTLs moves every key towards its end, and the deadlines of tickets with it.
func shortenTTLs(t testing.TB, client redis.UniversalClient, d time.Duration) {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatalf("keys: %v", err)
	}
	for _, key := range keys {
		left, err := client.PTTL(t.Context(), key).Result()
		if err != nil || left <= 0 {
			t.Fatalf("every key must have a TTL, %s has %s: %v", key, left, err)
		}
		if strings.HasSuffix(key, ":tickets") {
			for _, process := range client.ZRange(t.Context(), key, 0, -1).Val() {
				err = errors.Join(err, client.ZIncrBy(t.Context(), key, -float64(d.Milliseconds()), process).Err())
			}
		}
		if err := errors.Join(err, client.PExpire(t.Context(), key, left-d).Err()); err != nil {
			t.Fatalf("shorten the TTL of %s: %v", key, err)
		}
	}
}
