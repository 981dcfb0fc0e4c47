// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// TestHistories lets three replicas drive the same hundred runs of a tenant with limit 2, while
// Redis loses its data or is restarted. The world checks each change of the run objects: I4 holds
// at every moment. In the end all runs are over, and nothing is left in the quota.
//
// mutation: a replica that does not touch the runs before it lists them, a restore.lua that adds
// nothing, and a room() that counts no slots make this fail.
func TestHistories(t *testing.T) {
	atomicOnly := func() Limits { return Limits{Max: 2} }
	// The TTL is short: a lock whose holder could not free it, because Redis was away, holds up all
	// others for so long.
	herd := &LockSettings{TTL: time.Second, MaxWait: patience, Retry: policy.BusyRetry{Delay: 10 * time.Millisecond, JitterPercent: 50}}
	lockOnly := func() Limits { return Limits{Max: 2, Lock: herd} }
	switching := func() Limits {
		if rand.IntN(2) == 0 {
			return atomicOnly()
		}
		return lockOnly()
	}
	quiet := func(context.Context, *redistest.Server) {}
	flush := func(_ context.Context, s *redistest.Server) { s.FlushAll() }
	restart := func(_ context.Context, s *redistest.Server) { s.Restart() }
	// Each restart brings back the data of a moment after the last one.
	older := func(ctx context.Context, s *redistest.Server) { s.Restart(); _ = s.Client().Save(ctx).Err() }
	tests := map[string]struct {
		limits  func() Limits
		nemesis func(context.Context, *redistest.Server)
	}{
		"Atomic":                                   {limits: atomicOnly, nemesis: quiet},
		"Lock":                                     {limits: lockOnly, nemesis: quiet},
		"strategies switched at every call":        {limits: switching, nemesis: quiet},
		"Atomic, data lost":                        {limits: atomicOnly, nemesis: flush},
		"switching, data lost":                     {limits: switching, nemesis: flush},
		"Atomic, restarted without its data":       {limits: atomicOnly, nemesis: restart},
		"switching, restarted with older data":     {limits: switching, nemesis: older},
		"Lock, restarted, data lost in the middle": {limits: lockOnly, nemesis: func(_ context.Context, s *redistest.Server) { s.Restart(); s.FlushAll() }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, "--dir", t.TempDir())
			w := newWorld(t, 2, 100)
			play(t, w, test.limits, func() redis.UniversalClient { return testClient(t, server.Addr()) }, func(ctx context.Context) {
				test.nemesis(ctx, server)
			})
		})
	}
	t.Run("the stand-in, data lost", func(t *testing.T) {
		server := miniredis.RunT(t)
		w := newWorld(t, 2, 40)
		play(t, w, switching, func() redis.UniversalClient { return testClient(t, server.Addr()) }, func(context.Context) { server.FlushAll() })
	})
}

// disasters is how often the nemesis strikes: each time after some more runs have finished.
const disasters = 5

// play lets three replicas drive all runs of a world to their ends.
func play(t *testing.T, w *world, limits func() Limits, connect func() redis.UniversalClient, nemesis func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var all, cleaner sync.WaitGroup
	var first *replica
	for range 3 {
		r := &replica{world: w, quota: testQuota(connect(), Options{}), limits: limits, hold: 10 * time.Millisecond, pause: 2 * time.Millisecond}
		first = r
		for uid := range w.wakes {
			all.Go(func() { r.drive(ctx, uid) })
		}
	}
	all.Go(func() {
		for strike := range disasters {
			w.awaitFinished(ctx, (strike+1)*len(w.wakes)/(disasters+2))
			nemesis(ctx)
		}
	})
	cleanerCtx, dismiss := context.WithCancel(ctx)
	cleaner.Go(func() {
		for cleanerCtx.Err() == nil {
			first.clean(cleanerCtx)
			sleep(cleanerCtx, 20*time.Millisecond)
		}
	})
	all.Wait()
	dismiss()
	cleaner.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%d of %d runs finished in time", w.finished, len(w.objects))
	}
	for !first.clean(ctx) {
		if ctx.Err() != nil {
			t.Fatal("something is left in the gate")
		}
	}
	t.Logf("%d runs were in at a time", w.most)
}

func (w *world) awaitFinished(ctx context.Context, n int) {
	for finished := 0; finished < n && ctx.Err() == nil; {
		w.mu.Lock()
		finished = w.finished
		w.mu.Unlock()
		sleep(ctx, time.Millisecond)
	}
}

// The holder of a slot is paused before it writes, for longer than anything lasts, and Redis loses
// its data meanwhile.
//
// mutation: a touch that changes no version makes this fail.
func TestAHolderThatIsPausedOverALossDoesNotComeIn(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newScene(t, client, nil, 1)
		w := newWorld(t, 1, 2)
		r := &replica{world: w, quota: s.quota, limits: func() Limits { return s.limits }}
		paused := w.read("run-ab")
		s.admits(paused.Run)
		s.flush()
		r.recover(t.Context(), &RebuildingError{})
		other := w.read("run-aa")
		s.admits(other.Run)
		must(t, w.write(other, func(o *object) { o.admitted = true }), "write of the other run")
		if err := w.write(paused, func(o *object) { o.admitted = true }); err == nil {
			t.Fatal("the write of the paused holder was accepted")
		}
		s.waits(paused.Run, 1, "")
	})
}
