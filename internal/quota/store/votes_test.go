// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/policy"
)

// mutation: a claim without NX, without a TTL, or under a key of another tenant or period
// makes this fail.
func TestOneProcessHasTheVote(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		must(t, client.FlushAll(t.Context()).Err(), "flush")
		for _, k := range []Key{acme(), {Policy: "batch", Tenant: "beta"}, {Policy: "other", Tenant: "acme"}} {
			for _, period := range []string{"4f2a-2:1", "4f2a-2:2", "77aa-3:1"} {
				var claimed atomic.Int64
				var all sync.WaitGroup
				for range 10 {
					quota := testQuota(client, Options{})
					all.Go(func() {
						ours, err := quota.ClaimVote(t.Context(), k, period, time.Minute)
						if err != nil {
							t.Error(err)
						}
						if ours {
							claimed.Add(1)
						}
					})
				}
				all.Wait()
				if n := claimed.Load(); n != 1 {
					t.Errorf("%s, %s: %d have the vote", k, period, n)
				}
			}
		}
		for _, key := range client.Keys(t.Context(), "*").Val() {
			if left := client.PTTL(t.Context(), key).Val(); left <= 0 || left > time.Minute {
				t.Errorf("%s ends in %s", key, left)
			}
		}
		if _, err := testQuota(client, Options{}).ClaimVote(t.Context(), acme(), "", time.Minute); !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("a vote of no period: %v", err)
		}
	})
}

// mutation: a try that is not counted when the caller gives up, and waits of strategy Lock that are
// told for each try, make this fail.
func TestADecisionTellsHowItWaited(t *testing.T) {
	type wait struct {
		BusyTries int
		Waited    time.Duration
	}
	onEach(t, func(t *testing.T, client *redis.Client) {
		for name, test := range map[string]struct {
			free int // after how many tries the lock is free; -1: never
			want wait
			busy bool
		}{
			"a lock that is free":                 {0, wait{0, 0}, false},
			"busy once":                           {1, wait{1, 10 * time.Millisecond}, false},
			"busy again":                          {2, wait{2, 20 * time.Millisecond}, false},
			"given up, after three tries in vain": {-1, wait{3, 20 * time.Millisecond}, true},
		} {
			t.Run(name, func(t *testing.T) {
				var told []wait
				s := newScene(t, client, &LockSettings{
					TTL: patience, MaxWait: 20 * time.Millisecond, Retry: policy.BusyRetry{Fixed: true, Delay: 10 * time.Millisecond},
					OnWaited: func(busyTries int, waited time.Duration) { told = append(told, wait{busyTries, waited}) },
				}, 2)
				clk, tries := clocktesting.NewFakeClock(time.Unix(0, 0)), 0
				s.quota.opts.Clock = clk
				if test.free != 0 {
					must(t, client.Set(t.Context(), lockKey(s), "another", 0).Err(), "take the lock")
				}
				s.quota.opts.OnBusyRetry = func(string, bool, time.Duration) {
					if tries++; tries == test.free {
						must(t, client.Del(t.Context(), lockKey(s)).Err(), "free the lock")
					}
				}
				var err error
				stepped(clk, func() { _, err = s.quota.Admit(t.Context(), acme(), s.limits, run("a", 0, 0)) })
				if is[*BusyError](err) != test.busy {
					t.Errorf("admit: %v", err)
				}
				if diff := cmp.Diff([]wait{test.want}, told); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
			})
		}
	})
}

// While a change of strategy is tried, or spreads, some ask under the lock of a tenant and others
// do not, and the same process does both. Runs come and go in three processes; there are never more
// slots than the limit says.
//
// mutation: admit.lua with rank <= free makes this fail.
func TestBothStrategiesAtOnceKeepTheLimit(t *testing.T) {
	const processes, contenders, rounds, limit = 3, 24, 12, 3
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newScene(t, client, nil, limit)
		quick := &LockSettings{TTL: 4 * patience, MaxWait: 4 * patience, Retry: policy.BusyRetry{Delay: 2 * time.Millisecond, JitterPercent: 80}}
		slow := &LockSettings{TTL: 4 * patience, MaxWait: 4 * patience, Retry: policy.BusyRetry{Fixed: true, Delay: 5 * time.Millisecond}}
		var quotas []*Store
		for range processes {
			quotas = append(quotas, testQuota(testClient(t, client.Options().Addr), Options{}))
		}
		var admitted atomic.Int64
		var all sync.WaitGroup
		for i := range contenders {
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(17, uint64(i)))
				for round := range rounds {
					l := Limits{Max: limit, Lock: []*LockSettings{nil, quick, slow}[rnd.IntN(3)]}
					r, quota := run(strconv.Itoa(i)+"-"+strconv.Itoa(round), 0, i), quotas[i%processes]
					a, err := quota.Admit(t.Context(), acme(), l, r)
					if err != nil {
						t.Errorf("admit: %v", err)
						return
					}
					if a.Admitted {
						admitted.Add(1)
					}
					if a.Used > limit {
						t.Errorf("%d are in at once, the limit is %d", a.Used, limit)
					}
					if _, err := quota.Release(t.Context(), acme(), l, r.UID); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
		all.Wait()
		if n := admitted.Load(); n < rounds {
			t.Errorf("only %d were admitted", n)
		}
		s.holds(nil, nil, nil)
	})
}
