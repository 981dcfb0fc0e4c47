// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/policy"
)

func lockKey(s *scene) string { return s.quota.keys(acme())[4] }

// The holder of the lock sleeps before its decision until its TTL is over, and
// others decide meanwhile.
//
// mutation: admit.lua and reserve.lua without the comparison of the token make this fail;
// unlock.lua without it makes it fail too.
func TestAHolderPausedBeyondItsTTLDecidesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		for call, decide := range map[string]func(s *scene) error{
			"admit": func(s *scene) error {
				_, err := s.quota.Admit(t.Context(), acme(), s.limits, run("paused", 0, 9))
				return err
			},
			"reserve": func(s *scene) error {
				_, err := s.quota.Reserve(t.Context(), acme(), s.limits, run("paused", 0, 9), time.Minute)
				return err
			},
		} {
			t.Run(call, func(t *testing.T) {
				s := newScene(t, client, bothStrategies()["Lock"], 2)
				other := *s
				other.limits.Lock = nil
				h := s.hooked()
				h.set(func(command string) {
					if !isScript(command) {
						return
					}
					h.set(nil, nil)
					if left := client.PTTL(t.Context(), lockKey(s)).Val(); left <= 0 {
						t.Errorf("the lock ends in %s; want a TTL", left)
					}
					must(t, client.Set(t.Context(), lockKey(s), "another", patience).Err(), "let the TTL pass, and another take the lock")
					other.admits(run("a", 0, 0))
				}, nil)
				if err := decide(s); !is[*BusyError](err) {
					t.Errorf("%s: %v; want busy", call, err)
				}
				other.holds([]string{"a"}, nil, nil)
				if owner := client.Get(t.Context(), lockKey(s)).Val(); owner != "another" {
					t.Errorf("the lock is owned by %q; want another", owner)
				}
			})
		}
	})
}

// mutation: a lock that is taken without NX, a loop that does not end at MaxWait, a delay that is
// not the policy's, and a wait beyond MaxWait make this fail.
func TestHowABusyLockIsWaitedFor(t *testing.T) {
	tests := map[string]struct {
		settings LockSettings
		rand     []float64
		want     []time.Duration // the delays, the last cut off by MaxWait
	}{
		"fixed": {
			LockSettings{MaxWait: 35 * time.Millisecond, Retry: policy.BusyRetry{Fixed: true, Delay: 10 * time.Millisecond, JitterPercent: 30}},
			[]float64{0},
			[]time.Duration{10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		},
		"jittered": {
			LockSettings{MaxWait: 30 * time.Millisecond, Retry: policy.BusyRetry{Delay: 10 * time.Millisecond, JitterPercent: 30}},
			[]float64{0, 0.5, 1},
			[]time.Duration{7 * time.Millisecond, 10 * time.Millisecond, 13 * time.Millisecond},
		},
		"once": {LockSettings{Retry: policy.BusyRetry{Delay: 10 * time.Millisecond}}, []float64{0}, nil},
		"a jitter that leaves nothing": {
			LockSettings{MaxWait: 2 * time.Millisecond, Retry: policy.BusyRetry{Delay: time.Millisecond, JitterPercent: 100}},
			[]float64{0},
			[]time.Duration{time.Millisecond, time.Millisecond},
		},
	}
	onEach(t, func(t *testing.T, client *redis.Client) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				test.settings.TTL = patience
				s := newScene(t, client, &test.settings, 2)
				clk := clocktesting.NewFakeClock(time.Unix(0, 0))
				var delays []time.Duration
				var drawn int
				s.quota.opts.Clock = clk
				s.quota.opts.Rand = func() float64 { drawn++; return test.rand[(drawn-1)%len(test.rand)] }
				s.quota.opts.OnBusyRetry = func(policy string, fixed bool, delay time.Duration) {
					if policy != "batch" || fixed != test.settings.Retry.Fixed {
						t.Errorf("a wait for %s, fixed %v", policy, fixed)
					}
					delays = append(delays, delay)
				}
				s.quota.opts.OnTaken = func(string, int) { t.Error("a lock was counted that was not had") }
				must(t, client.Set(t.Context(), lockKey(s), "another", 0).Err(), "take the lock")

				var err error
				stepped(clk, func() { _, err = s.quota.Admit(t.Context(), acme(), s.limits, run("a", 0, 0)) })
				busy, ok := errors.AsType[*BusyError](err)
				if !ok || busy.Waited != test.settings.MaxWait || busy.Key != acme() {
					t.Errorf("admit: %+v; want busy after exactly %s", err, test.settings.MaxWait)
				}
				if diff := cmp.Diff(test.want, delays); diff != "" {
					t.Errorf("delays (-want +got):\n%s", diff)
				}
				s.holds(nil, nil, nil)
			})
		}
	})
}

// stepped lets the clock go on, a millisecond whenever somebody waits for it, until f returns.
func stepped(clk *clocktesting.FakeClock, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return
		default:
			if clk.HasWaiters() {
				clk.Step(time.Millisecond)
			}
		}
	}
}

// mutation: unlock in the context of the caller, or only after success, makes this fail.
func TestTheLockIsGivenBack(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		isFree := func(t *testing.T, s *scene) {
			t.Helper()
			if owner := client.Get(t.Context(), lockKey(s)).Val(); owner != "" {
				t.Errorf("the lock is owned by %q; want nobody", owner)
			}
		}
		t.Run("after a decision", func(t *testing.T) {
			s := newScene(t, client, bothStrategies()["Lock"], 1)
			s.admits(run("a", 0, 9))
			s.waits(run("b", 0, 8), 1, "")
			s.reserves("c", false)
			isFree(t, s)
		})
		t.Run("when it is closed", func(t *testing.T) {
			s := newScene(t, client, bothStrategies()["Lock"], 1)
			s.flush()
			s.isClosed(RebuildMissing)
			isFree(t, s)
		})
		t.Run("when the reply to the take was lost", func(t *testing.T) {
			s := newScene(t, client, bothStrategies()["Lock"], 1)
			h := s.hooked()
			h.set(nil, func(command string) error {
				if command == "set" {
					return errLostReply
				}
				return nil
			})
			if _, err := s.quota.Admit(t.Context(), acme(), s.limits, run("a", 0, 0)); !is[*UnavailableError](err) || !errors.Is(err, errLostReply) {
				t.Errorf("admit: %v; want unavailable", err)
			}
			isFree(t, s)
		})
		t.Run("when the caller gives up", func(t *testing.T) {
			s := newScene(t, client, bothStrategies()["Lock"], 1)
			h := s.hooked()
			ctx, cancel := context.WithCancel(t.Context())
			h.set(nil, func(command string) error {
				if command == "set" {
					cancel()
				}
				return nil
			})
			if _, err := s.quota.Admit(ctx, acme(), s.limits, run("a", 0, 0)); !is[*UnavailableError](err) || !errors.Is(err, context.Canceled) {
				t.Errorf("admit: %v; want unavailable", err)
			}
			isFree(t, s)
		})
	})
}

// mutation: a count of tries instead of retries makes this fail.
func TestALockThatIsHadIsCountedWithItsRetries(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newScene(t, client, &LockSettings{TTL: patience, MaxWait: patience, Retry: policy.BusyRetry{Delay: time.Millisecond}}, 2)
		var taken []string
		s.quota.opts.OnTaken = func(policy string, retries int) { taken = append(taken, fmt.Sprintf("%s after %d", policy, retries)) }
		s.admits(run("a", 0, 0))
		busy := 0
		s.quota.opts.OnBusyRetry = func(string, bool, time.Duration) {
			if busy++; busy == 3 {
				must(t, client.Del(t.Context(), lockKey(s)).Err(), "free the lock")
			}
		}
		must(t, client.Set(t.Context(), lockKey(s), "another", 0).Err(), "take the lock")
		s.admits(run("b", 0, 0))
		if diff := cmp.Diff([]string{"batch after 0", "batch after 3"}, taken); diff != "" {
			t.Errorf("taken (-want +got):\n%s", diff)
		}
	})
}

func TestACallerThatGivesUpDoesNotWaitForTheLock(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newScene(t, client, &LockSettings{TTL: patience, MaxWait: 10 * patience, Retry: policy.BusyRetry{Delay: 10 * patience}}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		s.quota.opts.OnBusyRetry = func(string, bool, time.Duration) { cancel() }
		must(t, client.Set(t.Context(), lockKey(s), "another", 0).Err(), "take the lock")
		if _, err := s.quota.Admit(ctx, acme(), s.limits, run("a", 0, 0)); !errors.Is(err, context.Canceled) {
			t.Errorf("admit: %v; want cancelled", err)
		}
	})
}
