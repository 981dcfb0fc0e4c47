// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// percentile is the least figure that p percent do not exceed.
func percentile(all []time.Duration, p int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*p-1)/100]
}

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkDecision measures how long a hundred decisions at the same moment take, by three
// processes' worth of clients, with a limit of 2: see the numbers of the design. Each figure is
// the median over the rounds, so that what else the machine does spoils few of them. -benchtime
// 20x is enough.
func BenchmarkDecision(b *testing.B) {
	const contenders, processes = 100, 3
	server := redistest.Start(b)
	classical := func(fixed bool) *LockSettings {
		return &LockSettings{
			TTL: 10 * time.Second, MaxWait: 2 * time.Second,
			Retry: policy.BusyRetry{Fixed: fixed, Delay: 10 * time.Millisecond, JitterPercent: 30},
		}
	}
	strategies := []struct {
		name string
		lock *LockSettings
	}{{"atomic", nil}, {"lock-fixed", classical(true)}, {"lock-jittered", classical(false)}}
	p50, p95, busy := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string]int{}
	client := testClient(b, server.Addr())
	var quotas []*Store
	for range processes {
		quotas = append(quotas, warm(b, testClient(b, server.Addr()), contenders/processes+1))
	}
	for b.Loop() {
		for _, strategy := range strategies {
			s := newScene(b, client, strategy.lock, 2)
			load(b, s.quota)
			var mu sync.Mutex
			var all sync.WaitGroup
			start := make(chan struct{})
			admitted := 0
			var took []time.Duration
			for i := range contenders {
				all.Go(func() {
					<-start
					began := time.Now()
					a, err := quotas[i%processes].Admit(b.Context(), acme(), s.limits, run(strconv.Itoa(i), 0, i))
					d := time.Since(began)
					mu.Lock()
					defer mu.Unlock()
					took = append(took, d)
					if is[*BusyError](err) {
						busy[strategy.name]++
					} else {
						must(b, err, "admit")
					}
					if a.Admitted {
						admitted++
					}
				})
			}
			close(start)
			all.Wait()
			p50[strategy.name] = append(p50[strategy.name], percentile(took, 50))
			p95[strategy.name] = append(p95[strategy.name], percentile(took, 95))
			if admitted != 2 && busy[strategy.name] == 0 {
				b.Errorf("%s: %d were admitted; want 2", strategy.name, admitted)
			}
		}
	}
	median := func(rounds map[string][]time.Duration, name string) float64 {
		return inMillis(percentile(rounds[name], 50))
	}
	for _, strategy := range strategies {
		b.ReportMetric(median(p50, strategy.name), strategy.name+"-p50-ms")
		b.ReportMetric(median(p95, strategy.name), strategy.name+"-p95-ms")
		b.ReportMetric(100*float64(busy[strategy.name])/float64(contenders*len(p50[strategy.name])), strategy.name+"-busy-%")
	}
	b.ReportMetric(median(p95, "lock-fixed")/median(p95, "atomic"), "fixed/atomic-p95")
	b.ReportMetric(median(p95, "lock-jittered")/median(p95, "atomic"), "jittered/atomic-p95")
	b.ReportMetric(0, "ns/op")
}

// warm is a quota whose client has that many connections.
func warm(b *testing.B, client *redis.Client, connections int) *Store {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() { must(b, client.Do(b.Context(), "CLIENT", "LIST").Err(), "connect") })
	}
	all.Wait()
	g := testQuota(client, Options{})
	load(b, g)
	return g
}

// BenchmarkManyTenants lets a thousand tenants with limit 1 run ten runs each, of a second or so.
// It measures for how long a slot is idle between the end of one run and the admission of the next.
// -benchtime 1x is enough.
func BenchmarkManyTenants(b *testing.B) {
	const tenants, runs, workers = 1000, 10, 16
	client := testClient(b, redistest.Start(b).Addr())
	g := warm(b, client, workers)
	limits := Limits{Max: 1}
	var idle []time.Duration
	var slowest time.Duration
	for b.Loop() {
		must(b, client.FlushAll(b.Context()).Err(), "flush")
		var mu sync.Mutex
		var all, pool sync.WaitGroup
		work := make(chan func(), tenants*runs)
		for range workers {
			pool.Go(func() {
				for f := range work {
					f()
				}
			})
		}
		began := time.Now()
		var drive func(k Key, r Run, freed time.Time)
		drive = func(k Key, r Run, freed time.Time) {
			a, err := g.Admit(b.Context(), k, limits, r)
			if err != nil {
				b.Errorf("admit: %v", err)
			}
			if !a.Admitted {
				return
			}
			if !freed.IsZero() {
				mu.Lock()
				idle = append(idle, time.Since(freed))
				mu.Unlock()
			}
			time.AfterFunc(time.Duration(500+rand.IntN(1000))*time.Millisecond, func() {
				ended := time.Now()
				work <- func() {
					defer all.Done()
					next, err := g.Release(b.Context(), k, limits, r.UID)
					if err != nil {
						b.Errorf("release: %v", err)
					}
					for _, n := range next {
						i, _ := strconv.Atoi(n.UID)
						drive(k, run(n.UID, 0, runs-i), ended)
					}
				}
			})
		}
		for tenant := range tenants {
			k := Key{Tenant: fmt.Sprint("tenant-", tenant)}
			token, err := g.BeginRebuild(b.Context(), k)
			must(b, err, "begin")
			must(b, g.FinishRebuild(b.Context(), k, token, nil), "finish")
			all.Add(runs)
			for i := range runs {
				work <- func() { drive(k, run(strconv.Itoa(i), 0, runs-i), time.Time{}) }
			}
		}
		all.Wait()
		close(work)
		pool.Wait()
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(inMillis(percentile(idle, 50)), "idle-p50-ms")
	b.ReportMetric(inMillis(percentile(idle, 95)), "idle-p95-ms")
	b.ReportMetric(inMillis(percentile(idle, 100)), "idle-max-ms")
	b.ReportMetric(slowest.Seconds(), "all-done-s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAdmit is one decision about a run that waits behind n others: it must not grow with n.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range []int{0, 100, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := newScene(b, testClient(b, redistest.Start(b).Addr()), nil, 0)
			for i := range n {
				_, err := s.quota.Admit(b.Context(), acme(), s.limits, run(strconv.Itoa(i), 0, i))
				must(b, err, "admit")
			}
			r := run("last", -1, 0)
			for b.Loop() {
				_, err := s.quota.Admit(b.Context(), acme(), s.limits, r)
				must(b, err, "admit")
			}
		})
	}
}
