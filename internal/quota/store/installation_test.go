// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// shared is a Redis in which installation a has a slot and a hold.
type shared struct {
	*scene
	clock *clocktesting.FakeClock
	a     *Store
}

var mutex = []Want{{Name: "mutex", Permits: 1, Limit: 1}}

func newShared(t *testing.T, client *redis.Client) *shared {
	s := &shared{clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))}
	s.scene = &scene{t: t, client: client, limits: Limits{Max: 1}}
	s.flush()
	s.a = s.of("a")
	s.quota = s.a
	s.opens()
	return s
}

// of is a process of an installation.
func (s *shared) of(installation string, change ...func(*Options)) *Store {
	o := Options{Installation: installation, Clock: s.clock}
	for _, f := range change {
		f(&o)
	}
	return testQuota(s.client, o)
}

// opens has a rebuild what there is, with a slot and a hold.
func (s *shared) opens() {
	s.t.Helper()
	s.rebuild()
	s.admits(run("mine", 0, 0))
	token, err := s.a.BeginLocks(s.t.Context())
	must(s.t, err, "begin locks")
	_, err = s.a.RestoreLocks(s.t.Context(), token, 0, nil)
	must(s.t, err, "open locks")
	if got, err := s.a.TakeLocks(s.t.Context(), Ticket{ID: "mine", Run: "team/mine", Tree: "team/mine", Version: "1"}, mutex); got.State != LocksHeld {
		s.t.Fatalf("take: %+v, %v", got, err)
	}
}

// calls are all that could grant, drop, release or open anything.
func calls(ctx context.Context, g *Store) map[string]error {
	all, l := map[string]error{}, Limits{Max: 9}
	_, all["admit"] = g.Admit(ctx, acme(), l, run("theirs", 0, 0))
	_, all["admit by a lock"] = g.Admit(ctx, acme(), Limits{Max: 9, Lock: &LockSettings{TTL: time.Minute}}, run("theirs", 0, 0))
	_, all["reserve"] = g.Reserve(ctx, acme(), l, run("theirs", 0, 0), time.Minute)
	_, all["release"] = g.Release(ctx, acme(), l, "mine")
	_, all["drop"] = g.Drop(ctx, acme(), l, []string{"mine"})
	_, all["drop locks"] = g.DropLocks(ctx, Dropping{Ticket: "mine"})
	_, all["take locks"] = g.TakeLocks(ctx, Ticket{ID: "theirs", Run: "x/y", Tree: "x/y", Version: "1"}, mutex)
	_, all["snapshot"] = g.SnapshotLocks(ctx)
	_, all["begin"] = g.BeginRebuild(ctx, acme())
	_, all["begin locks"] = g.BeginLocks(ctx)
	_, all["vote"] = g.ClaimVote(ctx, acme(), "period", time.Minute)
	return all
}

// refuses fails the test unless a store is told that Redis is another one's, and does nothing.
func (s *shared) refuses(g *Store, theirs, ours string) {
	s.t.Helper()
	before := s.dump()
	for call, err := range calls(s.t.Context(), g) {
		foreign, ok := errors.AsType[*ForeignError](err)
		if !ok || *foreign != (ForeignError{Theirs: theirs, Ours: ours}) || !is[*UnavailableError](err) {
			s.t.Errorf("%s: %v; want that Redis is that of %s", call, err, theirs)
		}
	}
	if after := s.dump(); !slices.Equal(before, after) {
		s.t.Errorf("keys were changed:\n%q\n%q", before, after)
	}
}

// dump is every key with its value.
func (s *shared) dump() (all []string) {
	s.t.Helper()
	keys, err := s.client.Keys(s.t.Context(), "*").Result()
	must(s.t, err, "keys")
	slices.Sort(keys)
	for _, k := range keys {
		text := k
		if kind := s.client.Type(s.t.Context(), k).Val(); kind == "hash" {
			text += s.client.HGetAll(s.t.Context(), k).String()
		}
		all = append(all, text)
	}
	return all
}

// mutation: ask, lock or ClaimVote without own makes this fail.
func TestRedisOfAnotherInstallationIsLeftAlone(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		s.refuses(s.of("b"), "a", "b")
		s.refuses(s.of("b", func(o *Options) { o.TakeOver = "c" }), "a", "b")
		if err := Own(t.Context(), s.of("b")); !is[*ForeignError](err) {
			t.Errorf("whose it is: %v", err)
		}
		s.admits(run("mine", 0, 0))
		if got, err := s.of("a").SnapshotLocks(t.Context()); len(got.Holds) != 1 || err != nil { // another replica
			t.Errorf("another replica of a sees %+v, %v", got, err)
		}
		if theirs, err := Installation(t.Context(), s.of("")); theirs != "a" || err != nil {
			t.Errorf("Redis says it is that of %q, %v", theirs, err)
		}
	})
}

// mutation: own that remembers for good that Redis was ours makes this fail, and so does ask that
// goes on remembering it when the data is gone.
func TestAfterALossRedisIsTheFirstOnesThatLooks(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		b := s.of("b")
		s.refuses(b, "a", "b")
		s.flush()
		s.isClosed(RebuildMissing) // a notices, and looks again
		s.refuses(b, "a", "b")
		s.opens()

		s.flush()
		must(t, Own(t.Context(), b), "b looks first")
		s.clock.Step(lookEvery)
		s.refuses(s.a, "b", "a")
	})
}

// A resync of the one that lost it sees first that somebody else opened the data.
//
// mutation: learn that goes on remembering whose Redis was when a term is new makes this fail.
func TestWhoFindsTheDataOpenedByAnotherLooksAgain(t *testing.T) {
	s := newShared(t, testClient(t, redistest.Start(t).Addr()))
	s.flush()
	b := s.of("b")
	s.quota, s.a = b, b
	a := s.of("a")
	a.looked = s.clock.Now() // right before the loss
	s.opens()
	if _, err := a.SnapshotLocks(t.Context()); err != nil {
		t.Errorf("the look that notices it: %v", err)
	}
	s.refuses(a, "b", "a")
}

// mutation: installation.lua without its second argument makes this fail.
func TestATakeOverNamesTheOneThatIsGone(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		b := s.of("b", func(o *Options) { o.TakeOver = "a" })
		s.quota = b
		if next, err := b.Drop(t.Context(), acme(), s.limits, []string{"mine"}); err != nil {
			t.Errorf("drop what a left: %v, %v", next, err)
		}
		s.admits(run("theirs", 0, 0))
		s.clock.Step(lookEvery)
		s.refuses(s.a, "b", "a")
		s.clock.Step(lookEvery)
		s.admits(run("theirs", 0, 0)) // the flag may stay
	})
}

// mutation: own that looks without an installation makes this fail.
func TestWithoutAnInstallationNobodyLooks(t *testing.T) {
	client := testClient(t, miniredis.RunT(t).Addr())
	s := newShared(t, client)
	for call, err := range calls(t.Context(), s.of("")) {
		if is[*ForeignError](err) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// Nobody is asked for longer than before, nor told anything else, when Redis is away.
func TestWhoseRedisIsThatIsAway(t *testing.T) {
	server := redistest.Start(t)
	s := newShared(t, testClient(t, server.Addr()))
	server.Stop()
	b := s.of("b")
	for call, err := range calls(t.Context(), b) {
		if !is[*UnavailableError](err) || is[*ForeignError](err) {
			t.Errorf("%s: %v", call, err)
		}
	}
}
