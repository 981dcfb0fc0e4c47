// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/quota/store/locktable"
)

const (
	holdsKey   = "{adm-locks}:holds"
	placesKey  = "{adm-locks}:places"
	queueKey   = "{adm-locks}:queue"
	holdersKey = "{adm-locks}:holders"
)

// calls notes what a client asks of scripts. after is called after each, with how many there were,
// and its answer, of which it says what the client is told.
type calls struct {
	args, answers [][]any
	after         func(n int, answer []any) []any
}

func (*calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		script, is := cmd.(*redis.Cmd)
		if !is || !strings.HasPrefix(cmd.Name(), "eval") || redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		answer, _ := script.Slice()
		keys, _ := script.Args()[2].(int)
		c.args, c.answers = append(c.args, script.Args()[3+keys:]), append(c.answers, answer)
		if c.after != nil && err == nil {
			script.SetVal(c.after(len(c.args), answer))
		}
		return err
	}
}

// watched is a scene on a real Redis, and a store whose calls are noted.
func watched(t *testing.T) (*lockScene, *store.Store, *calls) {
	t.Helper()
	server := redistest.Start(t)
	open := func() *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true, ReadTimeout: time.Minute})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	c, client := &calls{}, open()
	client.AddHook(c)
	return newLockScene(t, open()), store.New(client, store.Options{Timeout: time.Minute}), c
}

// waits enters places as locks_take.lua does, but in few calls: each wants one lock.
func (s *lockScene) waits(n int, id func(int) string, lock func(int) string) {
	s.t.Helper()
	for from := 0; from < n; from += 5000 {
		pipe := s.client.Pipeline()
		for i := from; i < min(n, from+5000); i++ {
			k := ticket(id(i), i+1, 0)
			order := fmt.Sprintf("%010d.%012d.%020d", 1<<31-1, 1000, i+1)
			pipe.HSet(s.t.Context(), placesKey, k.ID, fmt.Sprintf("%s %s %s - 1 1 0 %s", order, k.Run, k.Tree, lock(i)))
			pipe.ZAdd(s.t.Context(), queueKey, redis.Z{Member: lock(i) + " " + order + " " + k.ID})
			w := store.Waiter{Ticket: k, Wants: []store.Want{one(lock(i), 1)}}
			s.table.Places[k.ID] = locktable.Place{Waiter: w, Age: uint64(i + 1)}
		}
		if _, err := pipe.Exec(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// holds enters holds likewise: each of one lock of its own.
func (s *lockScene) holds(n int) {
	s.t.Helper()
	all := map[string]any{}
	for i := range n {
		h := store.Holding{Ticket: ticket(fmt.Sprint("h", i), i+1, 0), Fence: int64(i + 1), Locks: []store.Hold{{Name: fmt.Sprint("own", i), Permits: 1}}}
		all["h"+h.Ticket.ID] = fmt.Sprintf("%020d %d %s %s 1 own%d", i+1, h.Fence, h.Ticket.Run, h.Ticket.Tree, i)
		all[fmt.Sprint("uown", i)] = 1
		s.table.Holds[h.Ticket.ID] = h
	}
	if err := s.client.HSet(s.t.Context(), holdsKey, all).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// All of Redis waits for a script: the end of a run with many locks, for which many wait, is
// dropped in many short calls. What becomes of it is the same.
//
// mutations: locks_drop.lua without its bound makes this fail, as does a DropLocks that keeps the
// answer of one portion only, that goes on after too many tickets, or that gives a call
// all of them.
func TestManyLocksAreDroppedInPortions(t *testing.T) {
	const tickets, locks, waiting = 40, 8, 60
	s, quota, asked := watched(t)
	name := func(i int) string { return fmt.Sprintf("mutex:team/m%03d", i) }
	var all []store.Dropping
	for i := range tickets {
		var wants []store.Want
		for l := range locks {
			wants = append(wants, one(name(i*locks+l), 1))
		}
		k := ticket(fmt.Sprint("t", i), i+1, 0)
		s.table.Take(k, wants)
		if a, err := s.store.TakeLocks(t.Context(), k, wants); err != nil || a.State != store.LocksHeld {
			t.Fatalf("%+v, %v", a, err)
		}
		all = append(all, store.Dropping{Ticket: k.ID})
	}
	s.waits(tickets*locks*waiting, func(i int) string { return fmt.Sprint("w", i) }, func(i int) string { return name(i / waiting) })
	s.same()

	want, wantHolds, _ := s.table.Drop(all...)
	got, err := quota.DropLocks(t.Context(), all...)
	if err != nil || got.Holds != wantHolds {
		t.Fatalf("%d holds, want %d; %v", got.Holds, wantHolds, err)
	}
	s.same()
	byTicket := func(a, b store.Wake) int { return cmp.Compare(a.Ticket, b.Ticket) }
	slices.SortFunc(want, byTicket)
	slices.SortFunc(got.Wake, byTicket)
	if diff := gocmp.Diff(want, slices.Compact(got.Wake)); diff != "" {
		t.Errorf("who is woken: reference -, script +\n%s", diff)
	}
	ended := map[string]bool{}
	for _, e := range got.Ended {
		ended[e.Lock] = true
	}
	if len(got.Ended) != tickets*locks || len(ended) != tickets*locks {
		t.Errorf("%d holds of %d locks ended, want one of each of %d", len(got.Ended), len(ended), tickets*locks)
	}
	if len(asked.args) != tickets/2 { // a call ends when it has touched 16 locks
		t.Errorf("%d calls, want %d", len(asked.args), tickets/2)
	}

	asked.args = nil
	if d, err := quota.DropLocks(t.Context(), slices.Repeat(all, 15)...); err != nil || d.Holds > 0 || len(asked.args) != 3 {
		t.Errorf("%+v, %v in %d calls, want nothing in 3", d, err, len(asked.args))
	}
	for _, args := range asked.args {
		if len(args) > 1+2*256 {
			t.Errorf("a call has %d arguments", len(args))
		}
	}
}

// mutation: a DropLocks that asks nothing for nobody makes this fail: no replica would learn that
// another found the data lost.
func TestToDropNobodySaysWhetherTheDataIsOpen(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		if d, err := s.store.DropLocks(t.Context()); err != nil || d.Holds > 0 {
			t.Errorf("open: %+v, %v", d, err)
		}
		if err := s.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := s.store.DropLocks(t.Context())
		if why, closed := errors.AsType[*store.RebuildingError](err); !closed || why.Why != store.RebuildMissing {
			t.Errorf("closed: %v", err)
		}
	})
}
