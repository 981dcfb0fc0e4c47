// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/policy"
)

// A hundred runs come at once, to three processes.
//
// mutation: a decision in two steps, count and then add, makes this fail.
func TestAHundredAtOnce(t *testing.T) {
	const contenders, processes = 100, 3
	onEach(t, func(t *testing.T, client *redis.Client) {
		patient := &LockSettings{TTL: 4 * patience, MaxWait: 4 * patience, Retry: policy.BusyRetry{Delay: 20 * time.Millisecond, JitterPercent: 50}}
		for strategy, lock := range map[string]*LockSettings{"Atomic": nil, "Lock": patient} {
			for _, limit := range []int{2, 400} {
				t.Run(strategy+", limit "+strconv.Itoa(limit), func(t *testing.T) {
					s := newScene(t, client, lock, limit)
					var quotas []*Store
					for range processes {
						quotas = append(quotas, testQuota(testClient(t, client.Options().Addr), Options{}))
					}
					admitted := s.together(contenders, func(i int) (Answer, error) {
						return quotas[i%processes].Admit(t.Context(), acme(), s.limits, run(strconv.Itoa(i), 0, i))
					})
					if want := min(limit, contenders); admitted != want {
						t.Errorf("%d of %d were admitted; want %d", admitted, contenders, want)
					}
					b, err := s.quota.Snapshot(t.Context(), acme())
					must(t, err, "book")
					if len(b.Slots) != admitted || len(b.Queue) != contenders-admitted {
						t.Errorf("%d slots, %d in line", len(b.Slots), len(b.Queue))
					}

					s.flush()
					s.rebuild()
					reserved := s.together(contenders, func(i int) (Answer, error) {
						return quotas[i%processes].Reserve(t.Context(), acme(), s.limits, run(strconv.Itoa(i), 0, i), time.Hour)
					})
					if want := min(limit, contenders); reserved != want {
						t.Errorf("%d of %d were reserved; want %d", reserved, contenders, want)
					}
				})
			}
		}
	})
}

// together asks n times at once, and counts the answers that let in.
func (s *scene) together(n int, ask func(i int) (Answer, error)) int {
	s.t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	admitted := 0
	for i := range n {
		all.Go(func() {
			a, err := ask(i)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.t.Errorf("ask for %d: %v", i, err)
			}
			if a.Admitted {
				admitted++
			}
		})
	}
	all.Wait()
	return admitted
}
