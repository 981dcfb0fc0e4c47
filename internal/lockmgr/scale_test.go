// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

func TestTenThousandLeasesAreKeptAndGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const leases = 10000
		r := request()
		held := make([]*Lease, leases)
		for i := range held {
			r.RunUID = strconv.Itoa(i)
			held[i] = b.acquire(r)
		}
		b.pass(21 * time.Second)
		for _, l := range held {
			b.isValid(l)
			l.Release(t.Context())
		}
		b.pass(time.Second)
		if len(b.m.runs) != 0 || len(b.m.queue) != 0 || len(b.store.locks) != 0 {
			t.Errorf("%d runs, %d events, %d locks are left", len(b.m.runs), len(b.m.queue), len(b.store.locks))
		}
	})
}

// The policy is that of config/samples/lockpolicy-strict.yaml. Where Redis hangs, each renewal
// takes its whole timeout, and renewalsAtOnce of them are under way: docs/locks.md says when
// holders have stopped then.
//
// mutation: a lease that waits for its renewal beyond its validity makes this fail, and so do 1,000
// renewals under way.
func TestManyLeasesEndByTheirValidityWhereRedisHangs(t *testing.T) {
	for leases, want := range map[int]struct {
		by     time.Duration
		reason Reason
	}{
		renewalsAtOnce: {4700 * time.Millisecond, RenewalFailuresExceeded},
		1000:           {7900 * time.Millisecond, LeaseDeadlineReached},
	} {
		t.Run(strconv.Itoa(leases), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				r := request()
				r.Policy.TTL = 10 * time.Second
				r.Policy.Renewal = policy.Renewal{
					Interval: 2500 * time.Millisecond, Timeout: 500 * time.Millisecond, MaxConsecutiveFailures: 2, Margin: 2100 * time.Millisecond,
				}
				held := make([]*Lease, leases)
				for i := range held {
					r.RunUID = strconv.Itoa(i)
					held[i] = b.acquire(r)
				}
				b.fates("renew", timesOut)
				b.pass(want.by)
				for _, l := range held {
					if cause := lossOf(l); cause == nil || cause.Reason != want.reason {
						t.Fatalf("after %s a lease is lost for %v; want %s", time.Since(b.start), cause, want.reason)
					}
					l.Release(t.Context())
				}
			})
		})
	}
}

// countCommands is a go-redis hook.
type countCommands struct{ n atomic.Int64 }

// DialHook implements redis.Hook.
func (*countCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook. Pipelines only log in, when a connection is made.
func (*countCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h *countCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func TestRedisIsAskedTwicePerShortUse(t *testing.T) {
	client := newTestClient(t, redistest.Start(t).Addr())
	m := manager(t, client)
	mustAcquire(t, m, request()).Drop(t.Context()) // loads the scripts
	hook := &countCommands{}
	client.AddHook(hook)
	mustAcquire(t, m, request()).Drop(t.Context())
	if got := hook.n.Load(); got != 2 {
		t.Errorf("a take and a release cost %d commands; want 2", got)
	}
}

func BenchmarkUncontended(b *testing.B) {
	client := newTestClient(b, redistest.Start(b).Addr())
	m := manager(b, client)
	mustAcquire(b, m, request()).Drop(b.Context())
	hook := &countCommands{}
	client.AddHook(hook)
	b.ReportAllocs()
	for b.Loop() {
		mustAcquire(b, m, request()).Drop(b.Context())
	}
	b.ReportMetric(float64(hook.n.Load())/float64(b.N), "commands/op")
}
