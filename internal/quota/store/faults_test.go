// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// every calls each verb of a quota at the same time.
func every(ctx context.Context, g *Store, l Limits) map[string]error {
	calls := map[string]func() error{
		"admit":       func() error { _, err := g.Admit(ctx, acme(), l, run("a", 0, 0)); return err },
		"reserve":     func() error { _, err := g.Reserve(ctx, acme(), l, run("a", 0, 0), time.Minute); return err },
		"release":     func() error { _, err := g.Release(ctx, acme(), l, "a"); return err },
		"drop":        func() error { _, err := g.Drop(ctx, acme(), l, []string{"a"}); return err },
		"next":        func() error { _, err := g.Next(ctx, acme(), l); return err },
		"book":        func() error { _, err := g.Snapshot(ctx, acme()); return err },
		"restore":     func() error { return g.Restore(ctx, acme(), []string{"a"}) },
		"begin":       func() error { _, err := g.BeginRebuild(ctx, acme()); return err },
		"finish":      func() error { return g.FinishRebuild(ctx, acme(), "token", nil) },
		"claim":       func() error { _, err := g.ClaimKey(ctx, "acme", "key", claimOf("a")); return err },
		"yield":       func() error { return g.ReleaseKey(ctx, "acme", "key", "a") },
		"claims":      func() error { _, err := g.Claims(ctx, "acme"); return err },
		"begin keys":  func() error { _, err := g.BeginRebuildKeys(ctx, "acme"); return err },
		"finish keys": func() error { return g.FinishRebuildKeys(ctx, "acme", "token", nil) },
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	errs := map[string]error{}
	for name, call := range calls {
		all.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	all.Wait()
	return errs
}

// mutation: a call without its timeout makes this fail where Redis hangs.
func TestRedisThatCannotBeUsed(t *testing.T) {
	for name, hurt := range map[string]func(s *redistest.Server){
		"hangs":               (*redistest.Server).Pause,
		"refuses connections": (*redistest.Server).Stop,
	} {
		for strategy, lock := range bothStrategies() {
			t.Run(name+", "+strategy, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				g := New(testClient(t, server.Addr()), Options{
					Rand:    func() float64 { return 1 },
					Explain: func(err error) error { return fmt.Errorf("explained: %w", err) },
				})
				load(t, g)
				hurt(server)
				began := time.Now()
				calls := every(t.Context(), g, Limits{Max: 2, Lock: lock})
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("that took %s; want a second, or two where the lock is given back", took)
				}
				for call, err := range calls {
					unavailable, ok := errors.AsType[*UnavailableError](err)
					if !ok || !strings.Contains(err.Error(), "explained: ") {
						t.Errorf("%s: %v; want unavailable, explained", call, err)
						continue
					}
					if d := unavailable.RetryDelay(); d != 1200*time.Millisecond {
						t.Errorf("%s: try again in %s; want 1.2 s", call, d)
					}
					if timeout, ok := errors.AsType[net.Error](err); name == "hangs" && (!ok || !timeout.Timeout()) {
						t.Errorf("%s: %v; want a timeout as the cause", call, err)
					}
				}
			})
		}
	}
}

func TestACallerThatGaveUpIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for call, err := range every(ctx, New(testClient(t, redistest.Start(t).Addr()), Options{}), Limits{Max: 2}) {
		if !is[*UnavailableError](err) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v; want unavailable, cancelled", call, err)
		}
	}
}

// What was done is found when it is done again.
//
// mutation: an Admit that is not idempotent by UID makes this fail.
func TestLostReplies(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		for strategy, lock := range bothStrategies() {
			t.Run(strategy, func(t *testing.T) {
				s := newScene(t, client, lock, 2)
				must(t, s.quota.FinishRebuildKeys(t.Context(), "acme", s.beginsKeys(), nil), "rebuild keys")
				h := s.hooked()
				lost := func(what string, call func() error) {
					t.Helper()
					h.set(nil, func(command string) error {
						if isScript(command) {
							return errLostReply
						}
						return nil
					})
					if err := call(); !errors.Is(err, errLostReply) || !is[*UnavailableError](err) {
						t.Errorf("%s: %v; want unavailable", what, err)
					}
					h.set(nil, nil)
				}
				admit := func(r Run) func() error {
					return func() error { _, err := s.quota.Admit(t.Context(), acme(), s.limits, r); return err }
				}
				lost("admit", admit(run("a", 0, 9)))
				s.holds([]string{"a"}, nil, nil)
				s.admits(run("a", 0, 9))
				s.admits(run("b", 0, 8))
				lost("place", admit(run("c", 0, 7)))
				s.waits(run("c", 0, 7), 1, "")
				s.holds([]string{"a", "b"}, []string{"c"}, nil)
				lost("release", func() error { _, err := s.quota.Release(t.Context(), acme(), s.limits, "a"); return err })
				s.releases("a", "c")
				s.releases("c")
				lost("reserve", func() error {
					_, err := s.quota.Reserve(t.Context(), acme(), s.limits, run("r", 0, 0), time.Minute)
					return err
				})
				s.reserves("r", true)
				s.holds([]string{"b"}, nil, []string{"r"})
				lost("claim", func() error { _, err := s.quota.ClaimKey(t.Context(), "acme", "key", claimOf("a")); return err })
				s.claims("key", "a", "a")
				s.claims("key", "b", "a")
			})
		}
	})
}

func TestARebuildWhoseReplyWasLostIsRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newScene(t, client, nil, 2)
		s.flush()
		h := s.hooked()
		token := s.begins()
		h.set(nil, func(string) error { return errLostReply })
		if err := s.quota.FinishRebuild(t.Context(), acme(), token, []string{"a"}); !is[*UnavailableError](err) {
			t.Errorf("finish: %v; want unavailable", err)
		}
		h.set(nil, nil)
		s.finishes(token, nil, "a")
		s.holds([]string{"a"}, nil, nil)
	})
}

// Whatever another program left under the name of a key: nothing is admitted, and
// nothing is guessed.
func TestDataOfAnotherKind(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		for i, name := range []string{"slots", "line", "places", "reserved"} {
			t.Run(name, func(t *testing.T) {
				s := newScene(t, client, nil, 2)
				s.limit(0).waits(run("a", 0, 0), 1, "")
				s.limit(9).reserves("r", true)
				must(t, client.Set(t.Context(), s.quota.keys(acme())[i], "odd", 0).Err(), "put something odd")
				if _, err := s.quota.Admit(t.Context(), acme(), s.limits, run("a", 0, 0)); !is[*UnavailableError](err) {
					t.Errorf("admit: %v; want unavailable", err)
				}
			})
		}
		t.Run("an epoch that is none", func(t *testing.T) {
			s := newScene(t, client, nil, 2)
			for _, odd := range []string{"", "odd", "1", "-1 x", "99999999999999 "} {
				must(t, client.HSet(t.Context(), s.quota.keys(acme())[0], ":epoch", odd).Err(), "put something odd")
				s.isClosed(RebuildServer)
			}
		})
		t.Run("a line of another make", func(t *testing.T) {
			s := newScene(t, client, nil, 0)
			s.waits(run("a", 0, 0), 1, "")
			must(t, client.ZAdd(t.Context(), s.quota.keys(acme())[1], redis.Z{Member: "0 odd"}).Err(), "put something odd")
			s.waits(run("a", 0, 0), 2, "")
			if _, err := s.quota.Snapshot(t.Context(), acme()); !is[*UnavailableError](err) {
				t.Errorf("book: %v; want unavailable", err)
			}
		})
	})
}

func TestNamesThatNoObjectHasAreRefused(t *testing.T) {
	g := New(testClient(t, "127.0.0.1:1"), Options{}) // nothing is asked of Redis
	long := strings.Repeat("x", maxName+1)
	ok, limits := run("a", 0, 0), Limits{Max: 1}
	for _, k := range []Key{{}, {Tenant: "a}b"}, {Tenant: "a b"}, {Tenant: "a\n"}, {Tenant: long}, {Policy: "a:b", Tenant: "a"}, {Policy: "{", Tenant: "a"}, {Policy: long, Tenant: "a"}} {
		_, admit := g.Admit(t.Context(), k, limits, ok)
		_, reserve := g.Reserve(t.Context(), k, limits, ok, time.Minute)
		_, release := g.Release(t.Context(), k, limits, "a")
		_, snapshot := g.Snapshot(t.Context(), k)
		_, begin := g.BeginRebuild(t.Context(), k)
		for call, err := range map[string]error{
			"admit": admit, "reserve": reserve, "release": release, "book": snapshot, "begin": begin,
			"restore": g.Restore(t.Context(), k, nil), "finish": g.FinishRebuild(t.Context(), k, "token", nil),
		} {
			if !errors.Is(err, ErrInvalidRequest) {
				t.Errorf("%s of %+v: %v; want an invalid request", call, k, err)
			}
		}
	}
	for _, r := range []Run{{}, {UID: "a"}, {Name: "a"}, {UID: "a b", Name: "a"}, {UID: ":epoch", Name: "a"}, {UID: long, Name: "a"}, {UID: "a", Name: "a b"}, {UID: "a", Name: long}} {
		if _, err := g.Admit(t.Context(), acme(), limits, r); !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("admit %+v: %v; want an invalid request", r, err)
		}
	}
	_, drop := g.Drop(t.Context(), acme(), limits, []string{"a", ":epoch"})
	_, longKey := g.ClaimKey(t.Context(), "acme", long, claimOf("a"))
	_, noKey := g.ClaimKey(t.Context(), "acme", "", claimOf("a"))
	_, odd := g.ClaimKey(t.Context(), "acme", "key", Claim{UID: "a", Name: "a b"})
	for call, err := range map[string]error{
		"drop": drop, "long key": longKey, "no key": noKey, "odd claim": odd,
		"tenant":      g.ReleaseKey(t.Context(), "a}b", "key", "a"),
		"no token":    g.FinishRebuild(t.Context(), acme(), "", nil),
		"no token 2":  g.FinishRebuildKeys(t.Context(), "acme", "", nil),
		"odd rebuild": g.FinishRebuildKeys(t.Context(), "acme", "token", map[string]Claim{"key": {UID: ":x"}}),
		"no uid":      g.Restore(t.Context(), acme(), []string{""}),
	} {
		if !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("%s: %v; want an invalid request", call, err)
		}
	}
}

func TestAbsurdFiguresAreTakenAsTheyAre(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newScene(t, client, nil, 0)
		old := Run{UID: "old", Name: "a/b", Priority: math.MinInt32, Created: time.Unix(math.MinInt64/2, 0)}
		late := Run{UID: "late", Name: "a/b", Priority: math.MinInt32, Created: time.Unix(math.MaxInt64/2, 0)}
		s.waits(late, 1, "")
		s.waits(old, 1, "")
		s.holds(nil, []string{"old", "late"}, nil)
		s.limit(math.MaxInt).admits(late)
		s.limit(math.MinInt).admits(old)
	})
}

func TestErrorsSayWhatToDo(t *testing.T) {
	g := New(nil, Options{Rand: func() float64 { return 0 }})
	k := Key{Policy: "batch", Tenant: "acme"}
	type boundary interface {
		error
		Reason() string
		RetryClass() string
		RetryDelay() time.Duration
	}
	tests := map[string]struct {
		err    error
		reason string
		class  string
		delay  time.Duration
		text   string
	}{
		"unavailable": {g.unavailable(k, errLostReply), "AdmissionUnavailable", "store_unavailable", 800 * time.Millisecond, `admission unavailable (tenant acme, policy "batch"): the reply was lost`},
		"busy":        {g.busy(k, 2*time.Second), "AdmissionBusy", "lock_busy", 400 * time.Millisecond, `admission busy (tenant acme, policy "batch"): the lock was not free for 2s`},
		"rebuilding": {
			&RebuildingError{Key: k, Why: RebuildServer, delay: g.spread(rebuildingDelay)}, "AdmissionRebuilding", "admission_rebuilding", 800 * time.Millisecond,
			`admission must be rebuilt (tenant acme, policy "batch"): Redis was restarted or replaced`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var b boundary
			if !errors.As(test.err, &b) || b.Reason() != test.reason || b.RetryClass() != test.class || b.RetryDelay() != test.delay || b.Error() != test.text {
				t.Errorf("%v", test.err)
			}
		})
	}
}
