// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

var errCutOff = errors.New("cut off")

// between stands between a replica and Redis. It is called before each call of a script, with how
// many there were; what it returns is what the call fails with.
type between func(n int) error

// through has a replica's calls of scripts go through f from now on.
func (r *replica) through(f between) {
	n := 0
	r.redis.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		if err := f(n); err != nil {
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			n++
		}
		return err
	}))
}

type hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// What a drop of many locks did before it failed is done: whom it lets go on is woken.
//
// mutations: Drop, or dropAll, that leaves out after an error what was dropped, or a DropLocks that
// does not tell, makes this fail.
func TestADropThatFailsHalfwayWakesWhoCanGoOn(t *testing.T) {
	for name, drop := range map[string]func(*replica, ...store.Dropping) error{
		"of a run":    func(r *replica, all ...store.Dropping) error { return r.Drop(t.Context(), all...) },
		"of a resync": func(r *replica, all ...store.Dropping) error { return r.dropAll(t.Context(), all) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r := s.replica()
			must(t, r.Resync(t.Context()))
			var all []store.Dropping
			for i := range 2 {
				var wants []store.Want
				for l := range 16 {
					wants = append(wants, store.Want{Name: fmt.Sprintf("mutex:%s/m%d-%d", s.ns, i, l), Permits: 1, Limit: 1, Longest: 9})
				}
				id := fmt.Sprint("over-", i)
				_, err := r.store.TakeLocks(t.Context(), store.Ticket{ID: id, Run: "ns/" + id, Tree: "ns/" + id, Version: "1"}, wants)
				must(t, err)
				all = append(all, store.Dropping{Ticket: id})
			}
			next := s.run("next", nil)
			r.takes(next, "mutex:"+s.ns+"/m0-7", store.LocksWaiting)
			r.through(func(n int) error {
				if n == 1 {
					return errCutOff
				}
				return nil
			})
			if err := drop(r, all...); !errors.Is(err, errCutOff) {
				t.Errorf("%v, want what cut it off", err)
			}
			if !r.wakes(next) {
				t.Error("who can go on is not woken")
			}
			if n := testutil.ToFloat64(r.metrics.leaked) + float64(testutil.CollectAndCount(r.metrics.times)); n != 1 {
				t.Errorf("%v are counted, want 1", n)
			}
		})
	}
}

// Redis may be unusable because of what a resync asks: it is left alone for longer each time.
//
// But what changes meanwhile is tried a second after the last one.
//
// mutations: a Start that tries again each second, or goes on with long pauses after a success,
// makes this fail, as does one that hears no news while resyncs fail, or that hears each kick.
func TestAResyncThatRedisCannotAnswerIsNotMadeEachSecond(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	var asked atomic.Int64
	var usable atomic.Bool
	r.redis.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !slices.Contains(cmd.Args(), any("p0")) { // as each resync begins
			return next(ctx, cmd)
		}
		if asked.Add(1); usable.Load() {
			return next(ctx, cmd)
		}
		cmd.SetErr(errCutOff)
		return errCutOff
	}))
	r.start()
	rests := func(pause time.Duration) {
		t.Helper()
		before := asked.Load()
		for left := pause - time.Millisecond; left > 0; left -= resyncs.LookPause {
			s.clock.Step(min(left, resyncs.LookPause))
			s.until("the rest goes on", s.clock.HasWaiters)
		}
		if n := asked.Load() - before; n > 0 {
			t.Fatalf("within %s there were %d resyncs", pause, n)
		}
		s.clock.Step(time.Millisecond)
		s.until(fmt.Sprintf("a resync after %s", pause), func() bool { return asked.Load() == before+1 && s.clock.HasWaiters() })
	}
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30} {
		rests(pause * time.Second)
	}
	r.kicks.Kick() // of a drop that failed, say
	rests(30 * time.Second)
	r.SemaphoreChanged("gpus")
	rests(time.Second)
	usable.Store(true)
	rests(30 * time.Second)
	rests(time.Second) // what it did not do for semaphores that changed was asked for
	usable.Store(false)
	rests(resyncPause)
	rests(resyncs.Retry)
}
