// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
		must(t, Own(t.Context(), s.of("b")), "a process of b that does not know a looks first")
		s.clock.Step(lookEvery)
		s.refuses(s.a, "b", "a")
	})
}

// A cluster whose Redis is set wrongly looks as often as the one whose Redis it is.
//
// mutation: installation.lua that claims whatever its third argument is makes this fail, and so
// does begin that lets a Store claim at once, or never.
func TestWhoWasRefusedLeavesALostRedisToTheOneWhoseItWas(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		b := s.of("b")
		s.refuses(b, "a", "b")
		s.clock.Step(time.Hour) // Redis may be away for long before it comes back empty
		s.flush()
		s.refuses(b, "a", "b")
		s.clock.Step(claimAfter - time.Second)
		s.refuses(b, "a", "b")
		must(t, Own(t.Context(), s.a), "a looks, and has it again")
		s.clock.Step(claimAfter)
		s.refuses(b, "a", "b")

		s.flush() // and a does not come back
		s.refuses(b, "a", "b")
		s.clock.Step(claimAfter)
		must(t, Own(t.Context(), b), "b looks a minute later")
		s.refuses(s.a, "b", "a")
	})
}

// looks stands before a Store's Redis, and knows the looks among its commands.
type looks struct {
	hook

	mu        sync.Mutex
	looks     int
	deadlines [2]time.Time  // of the last look, and of the first command after it
	holds     chan struct{} // the reply of a look is held back until it is closed; nil: none is
	held      chan struct{} // has a value when one is
}

// ProcessHook implements redis.Hook.
func (l *looks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		deadline, _ := ctx.Deadline()
		look := strings.Contains(cmd.String(), "adm-installation")
		l.mu.Lock()
		holds := l.holds
		switch {
		case look:
			l.looks++
			l.deadlines = [2]time.Time{deadline}
		case l.deadlines[1].IsZero():
			l.deadlines[1] = deadline
		}
		l.mu.Unlock()
		err := next(ctx, cmd)
		if look && holds != nil {
			l.held <- struct{}{}
			<-holds
		}
		return err
	}
}

// hooksLooks has a's calls pass a hook.
func (s *shared) hooksLooks() *looks {
	s.t.Helper()
	l := &looks{held: make(chan struct{}, 1)}
	client := testClient(s.t, s.client.Options().Addr)
	must(s.t, client.Ping(s.t.Context()).Err(), "the greeting of a connection is no call")
	client.AddHook(l)
	s.client = client
	s.a = s.of("a")
	s.quota = s.a
	return l
}

// A Redis that takes 0.6 s for each answer would let nobody in.
//
// mutation: ask, trySet or ClaimVote that looks in the time of its own call makes this fail.
func TestALookTakesNoTimeFromTheCall(t *testing.T) {
	s := newShared(t, testClient(t, redistest.Start(t).Addr()))
	l := s.hooksLooks()
	for call, do := range map[string]func(context.Context) error{
		"ask": func(ctx context.Context) error {
			_, err := s.a.Admit(ctx, acme(), s.limits, run("mine", 0, 0))
			return err
		},
		"lock": func(ctx context.Context) error {
			_, err := s.a.trySet(ctx, acme(), time.Minute, "token")
			return err
		},
		"vote": func(ctx context.Context) error {
			_, err := s.a.ClaimVote(ctx, acme(), "period", time.Minute)
			return err
		},
	} {
		s.clock.Step(lookEvery)
		before := l.looks
		must(t, do(t.Context()), "%s", call)
		if look, own := l.deadlines[0], l.deadlines[1]; l.looks != before+1 || look.IsZero() || !own.After(look) {
			t.Errorf("%s: %d looks, the last has until %s and the call until %s; want a later one", call, l.looks-before, look, own)
		}
	}
}

// mutation: found that does not compare doubts makes this fail.
func TestALookThatIsUnderWayDoesNotSettleALaterDoubt(t *testing.T) {
	s := newShared(t, testClient(t, redistest.Start(t).Addr()))
	l := s.hooksLooks()
	l.holds = make(chan struct{})
	looked := make(chan error, 1)
	go func() { looked <- Own(t.Context(), s.a) }()
	<-l.held
	s.a.learn("some", reply{int64(9)})
	close(l.holds)
	must(t, <-looked, "the look")
	l.holds = nil
	before := l.looks
	s.admits(run("mine", 0, 0))
	if l.looks != before+1 {
		t.Errorf("the next call looks %d times, want once", l.looks-before)
	}
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
