// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/quota/store/locktable"
	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// opened is between locks of the reference that were there before a rebuild and those that were
// made after it.
const opened = 2000

// lockScene plays the same calls on the scripts and on the reference.
type lockScene struct {
	t      *testing.T
	client *redis.Client
	store  *store.Store
	table  *locktable.Table
	last   int64 // fence that was given last
	seq    int
}

func newLockScene(t *testing.T, client *redis.Client) *lockScene {
	t.Helper()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s := &lockScene{t: t, client: client, store: store.New(client, store.Options{}), table: locktable.New()}
	s.rebuild()
	return s
}

// onBoth runs a test on a real Redis and on the stand-in.
func onBoth(t *testing.T, test func(*lockScene)) {
	t.Helper()
	for name, addr := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
		"stand-in": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: addr(t), DisableIdentity: true, ReadTimeout: time.Minute})
			t.Cleanup(func() { _ = client.Close() })
			test(newLockScene(t, client))
		})
	}
}

func (s *lockScene) rebuild(all ...store.Holding) {
	s.t.Helper()
	token, err := s.store.BeginLocks(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.table.Restore(s.table.Begin("token"), s.last, all...)
	s.table.Opened = time.Unix(opened, 0)
	if _, err := s.store.RestoreLocks(s.t.Context(), token, s.last, all); err != nil {
		s.t.Fatal(err)
	}
}

// ticket is of a run with the name of its UID: what is before the slash, if there is one.
func ticket(id string, version, priority int) store.Ticket {
	run := "team/" + uid(id)
	return store.Ticket{ID: id, Run: run, Tree: run, Version: strconv.Itoa(version), Priority: int32(priority), Created: time.Unix(1000, 0)}
}

func one(name string, limit int) store.Want {
	return store.Want{Name: name, Permits: 1, Limit: limit, Longest: 100}
}

// take asks both, and compares what they say. Where other locks were granted that may still be
// written there is no answer.
func (s *lockScene) take(k store.Ticket, wants ...store.Want) store.LocksAnswer {
	s.t.Helper()
	before := s.table.Holds[k.ID].Fence
	want, answered := s.table.Take(k, wants)
	got, err := s.store.TakeLocks(s.t.Context(), k, wants)
	if _, other := errors.AsType[*store.UnavailableError](err); other && !answered {
		s.same()
		return got
	}
	if err != nil || !answered {
		s.t.Fatalf("%s: answered %t, %v", k.ID, answered, err)
	}
	got.Rest = min(got.Rest, 1)
	ignore := cmpopts.IgnoreFields(store.LocksAnswer{}, "Fence", "Holders", "Used", "Waiting", "Lock")
	byTicket := cmpopts.SortSlices(func(a, b store.Wake) bool { return a.Ticket < b.Ticket })
	if diff := cmp.Diff(want, got, ignore, byTicket, cmpopts.EquateEmpty()); diff != "" {
		s.t.Fatalf("%s wants %v: reference -, script +\n%s", k.ID, wants, diff)
	}
	if got.State == store.LocksHeld && s.table.Holds[k.ID].Fence != before {
		if got.Fence <= s.last {
			s.t.Fatalf("%s has fence %d, and %d was given before", k.ID, got.Fence, s.last)
		}
		s.last = got.Fence
	}
	s.same()
	return got
}

func (s *lockScene) drop(all ...store.Dropping) []store.Wake {
	s.t.Helper()
	want, wantHolds, _ := s.table.Drop(all...)
	dropped, err := s.store.DropLocks(s.t.Context(), all...)
	if err != nil {
		s.t.Fatal(err)
	}
	if diff := cmp.Diff(want, dropped.Wake, cmpopts.EquateEmpty()); diff != "" || dropped.Holds != wantHolds {
		s.t.Fatalf("drop %v: %d holds, want %d; reference -, script +\n%s", all, dropped.Holds, wantHolds, diff)
	}
	s.same()
	return dropped.Wake
}

// same compares all there is.
func (s *lockScene) same() {
	s.t.Helper()
	got, err := s.store.SnapshotLocks(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if len(got.Holds) != len(s.table.Holds) || len(got.Waiters) != len(s.table.Places) {
		s.t.Fatalf("%d holds and %d places, want %d and %d", len(got.Holds), len(got.Waiters), len(s.table.Holds), len(s.table.Places))
	}
	for _, h := range got.Holds {
		want := s.table.Holds[h.Ticket.ID]
		if h.Ticket.Version != want.Ticket.Version || !slices.Equal(h.Locks, want.Locks) {
			s.t.Fatalf("hold %+v, want %+v", h, want)
		}
	}
	alike := func(a, b store.Want) bool { return a.Name == b.Name && a.Permits == b.Permits }
	inLine := 0
	for _, w := range got.Waiters {
		want := s.table.Places[w.Ticket.ID]
		if w.Refused != want.Refused || !slices.EqualFunc(w.Wants, want.Wants, alike) || w.Ticket.Priority != want.Ticket.Priority {
			s.t.Fatalf("place %+v, want %+v", w, want)
		}
		if !slices.ContainsFunc(w.Wants, func(l store.Want) bool { return l.Permits > l.Limit }) {
			inLine += len(w.Wants)
		}
	}
	if n, err := s.client.ZCard(s.t.Context(), "{adm-locks}:queue").Result(); err != nil || int(n) != inLine {
		s.t.Fatalf("%d are in the lines of locks, and places have %d, %v", n, inLine, err)
	}
}

func (s *lockScene) state(want string, got store.LocksAnswer) {
	s.t.Helper()
	if got.State != want {
		s.t.Fatalf("state %s, want %s (%+v)", got.State, want, got)
	}
}

func (s *lockScene) wakes(got []store.Wake, want ...string) {
	s.t.Helper()
	var ids []string
	for _, w := range got {
		ids = append(ids, w.Ticket)
	}
	if !slices.Equal(ids, want) {
		s.t.Fatalf("wakes %v, want %v", ids, want)
	}
}

// mutation: locks_take.lua without the look at used, or with one lock taken before the others are
// looked at, makes this fail.
func TestLocksAreTakenTogetherOrNotAtAll(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.state(store.LocksHeld, s.take(ticket("a", 1, 0), one("x", 1)))
		s.state(store.LocksWaiting, s.take(ticket("b", 2, 0), one("x", 1), one("y", 1)))
		s.state(store.LocksHeld, s.take(ticket("c", 3, 0), one("y", 1))) // b holds nothing while it waits
		s.wakes(s.drop(store.Dropping{Ticket: "a"}))                     // y is held
		s.wakes(s.drop(store.Dropping{Ticket: "c"}), "b")
		s.state(store.LocksHeld, s.take(ticket("b", 2, 0), one("x", 1), one("y", 1)))
	})
}

// A grant can be written with the version only for which it was asked: one that was asked again for
// a newer version stays.
//
// mutation: locks_drop.lua that ignores the version, or a take that lowers it, makes this fail.
func TestAGrantIsDroppedOnlyIfNobodyCanWriteIt(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.state(store.LocksHeld, s.take(ticket("a", 5, 0), one("x", 1)))
		s.drop(store.Dropping{Ticket: "a", Seen: "5"})
		s.drop(store.Dropping{Ticket: "a", Seen: store.PlaceOnly})
		s.state(store.LocksWaiting, s.take(ticket("b", 6, 0), one("x", 1)))
		s.take(ticket("a", 10, 0), one("x", 1)) // asked again, after a write that did not have it
		s.take(ticket("a", 5, 0), one("x", 1))  // by a process that was paused
		s.drop(store.Dropping{Ticket: "a", Seen: "9"})
		s.state(store.LocksWaiting, s.take(ticket("b", 6, 0), one("x", 1)))
		s.wakes(s.drop(store.Dropping{Ticket: "a", Seen: "11"}), "b")
	})
}

// A run of a Workflow was granted x, and no write has it; the Workflow was edited, and the run asks
// for y. It has what it asks for, and nothing else.
//
// mutation: locks_take.lua that says held whatever the ticket wants, or wakes nobody for what it
// gave up, makes this fail.
func TestATicketThatAsksForOtherLocksHasThose(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.state(store.LocksHeld, s.take(ticket("a", 1, 0), one("x", 1)))
		s.state(store.LocksWaiting, s.take(ticket("b", 2, 0), one("x", 1)))
		changed := s.take(ticket("a", 3, 0), one("y", 1))
		s.state(store.LocksHeld, changed)
		s.wakes(changed.Wake, "b")
		s.state(store.LocksWaiting, s.take(ticket("c", 4, 0), one("y", 1)))
		s.state(store.LocksHeld, s.take(ticket("b", 2, 0), one("x", 1)))
		waits := s.take(ticket("a", 5, 0), one("x", 1))
		s.state(store.LocksWaiting, waits)
		s.wakes(waits.Wake, "c")
		s.state(store.LocksHeld, s.take(ticket("c", 4, 0), one("y", 1)))
	})
	onBoth(t, func(s *lockScene) { // other permits
		two := store.Want{Name: "x", Permits: 2, Limit: 2, Longest: 9}
		s.state(store.LocksHeld, s.take(ticket("a", 1, 0), two))
		s.state(store.LocksHeld, s.take(ticket("a", 2, 0), one("x", 2)))
		s.state(store.LocksHeld, s.take(ticket("b", 3, 0), one("x", 2)))
		s.state(store.LocksWaiting, s.take(ticket("a", 4, 0), two))
	})
	onBoth(t, func(s *lockScene) { // the same in another order, as status may have it
		h := store.Holding{Ticket: ticket("a", 1, 0), Fence: 7, Locks: []store.Hold{{Name: "y", Permits: 1}, {Name: "x", Permits: 1}}}
		s.table.Restore("", h.Fence, h)
		if _, err := s.store.RestoreLocks(t.Context(), "", h.Fence, []store.Holding{h}); err != nil {
			t.Fatal(err)
		}
		if a := s.take(ticket("a", 2, 0), one("x", 1), one("y", 1)); a.State != store.LocksHeld || a.Fence != h.Fence {
			t.Errorf("%+v, want it held with fence %d", a, h.Fence)
		}
	})
}

// A process was granted x for version 5, and is about to write it. Another read the same version,
// and asks for y. The write would still be accepted: so x stays, until the run has a newer version.
//
// mutation: locks_take.lua that does not compare the versions makes this fail.
func TestAGrantThatMayStillBeWrittenStays(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.state(store.LocksHeld, s.take(ticket("a", 5, 0), one("x", 1)))
		for _, version := range []int{5, 4} {
			_, err := s.store.TakeLocks(t.Context(), ticket("a", version, 0), []store.Want{one("y", 1)})
			if _, other := errors.AsType[*store.UnavailableError](err); !other {
				t.Errorf("at version %d: %v, want unavailable", version, err)
			}
			s.take(ticket("a", version, 0), one("y", 1))
		}
		s.state(store.LocksWaiting, s.take(ticket("b", 6, 0), one("x", 1)))
		s.state(store.LocksHeld, s.take(ticket("c", 6, 0), one("y", 1)))
		newer := s.take(ticket("a", 6, 0), one("y", 1))
		s.state(store.LocksWaiting, newer)
		s.wakes(newer.Wake, "b")
	})
}

// A run waits for x; its Workflow was edited before a write says so, and it waits for y. It is in
// nobody's way in the line of x, and keeps its place in that of y.
//
// mutation: locks_take.lua that leaves the old lines only where the order changed makes this fail.
func TestATicketThatWaitsForOtherLocksLeavesItsLines(t *testing.T) {
	for name, kind := range map[string]store.Want{
		"Ordered":    {Permits: 1, Limit: 1, Longest: 9, Ordered: true},
		"KeepLatest": {Permits: 1, Limit: 1, Longest: 9, OnBusy: store.KeepLatest},
	} {
		of := func(lock string) store.Want {
			w := kind
			w.Name = lock
			return w
		}
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(s *lockScene) {
				s.take(ticket("h", 1, 0), of("x"))
				s.take(ticket("i", 2, 0), of("y"))
				s.state(store.LocksWaiting, s.take(ticket("a", 3, 0), of("x")))
				s.state(store.LocksWaiting, s.take(ticket("a", 4, 0), of("y")))
				b := s.take(ticket("b", 5, 0), of("x"))
				if b.State != store.LocksWaiting || b.Position != 1 {
					t.Errorf("%+v, want it to wait as the first", b)
				}
				s.state(store.LocksWaiting, s.take(ticket("a", 6, 0), of("y")))
				s.wakes(s.drop(store.Dropping{Ticket: "h"}), "b")
				s.state(store.LocksHeld, s.take(ticket("b", 5, 0), of("x")))
				s.wakes(s.drop(store.Dropping{Ticket: "i"}), "a")
				s.state(store.LocksHeld, s.take(ticket("a", 6, 0), of("y")))
				s.drop(store.Dropping{Ticket: "a"})
				s.state(store.LocksHeld, s.take(ticket("c", 7, 0), of("y")))
			})
		})
	}
	onBoth(t, func(s *lockScene) { // those behind it go on; the line of the other lock is full
		ordered := func(permits int) store.Want {
			return store.Want{Name: "x", Permits: permits, Limit: 2, Ordered: true, Longest: 9}
		}
		full := store.Want{Name: "y", Permits: 1, Limit: 1, Longest: 1}
		s.take(ticket("h", 1, 0), ordered(1))
		s.take(ticket("i", 1, 0), full)
		s.take(ticket("j", 2, 0), full)
		s.state(store.LocksWaiting, s.take(ticket("a", 3, 0), ordered(2)))
		s.state(store.LocksWaiting, s.take(ticket("b", 4, 0), ordered(1)))
		changed := s.take(ticket("a", 5, 0), full)
		s.state(store.LocksQueueFull, changed)
		s.wakes(changed.Wake, "b")
	})
}

// mutations: locks_drop.lua that tells of grants that nobody wrote, or not of each lock, or a time
// that is not that of the hold, makes this fail.
func TestHowLongALockWasHeld(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		a := s.take(ticket("a", 5, 0), one("x", 1), one("y", 1))
		s.take(ticket("b", 5, 0), one("z", 1))
		if err := s.client.HSet(s.t.Context(), "{adm-locks}:holds", "ha", fmt.Sprintf("%016d %d team/a team/a 1 x 1 y", 5, a.Fence-60_000)).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := s.store.DropLocks(t.Context(), store.Dropping{Ticket: "a"}, store.Dropping{Ticket: "b", Seen: "6"}, store.Dropping{Ticket: "none"})
		if err != nil || got.Holds != 2 || len(got.Ended) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, lock := range []string{"x", "y"} {
			if e := got.Ended[i]; e.Lock != lock || e.Held < time.Minute || e.Held > time.Hour {
				t.Errorf("%+v", e)
			}
		}
	})
}

// All of Redis waits for a script, and so do the locks and slots of all tenants. mutation: heads
// that looks at each ticket before one, by a pattern that is not anchored, takes it seconds.
func TestAQueueOfAnOrderedLockDoesNotKeepRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), DisableIdentity: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	s := newLockScene(t, client)
	ctx := t.Context()
	if err := errors.Join(client.ConfigSet(ctx, "slowlog-log-slower-than", "500000").Err(), client.Do(ctx, "SLOWLOG", "RESET").Err()); err != nil {
		t.Fatal(err)
	}
	want := store.Want{Name: "team/gpus:" + strings.Repeat("k", 180), Permits: 300, Limit: 300, Ordered: true, Longest: 1000}
	s.take(ticket("h", 1, 0), want)
	want.Permits = 1
	waiting := func(n int) store.Ticket { return ticket(fmt.Sprintf("w%03d", n), n+2, 0) }
	for n := range 256 {
		s.state(store.LocksWaiting, s.take(waiting(n), want))
	}
	s.drop(store.Dropping{Ticket: "h"})
	for n := range 3 {
		s.state(store.LocksHeld, s.take(waiting(n), want))
	}
	slow, err := client.SlowLogGet(ctx, 10).Result()
	if err != nil || len(slow) > 0 {
		t.Errorf("%d calls took Redis half a second or more: %v", len(slow), err)
	}
}

// mutation: heads that is always true makes the second part fail; blocked without
// runnable the first.
func TestOrderedBlocksAndFirstRunnableDoesNot(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), one("x", 1))
		s.take(ticket("i", 2, 0), one("y", 1))
		s.state(store.LocksWaiting, s.take(ticket("two", 3, 0), one("x", 1), one("y", 1)))
		s.state(store.LocksWaiting, s.take(ticket("late", 4, 0), one("x", 1)))
		s.wakes(s.drop(store.Dropping{Ticket: "h"}), "late") // the one before it waits for y
		s.state(store.LocksHeld, s.take(ticket("late", 4, 0), one("x", 1)))
		s.wakes(s.drop(store.Dropping{Ticket: "i"}))
		s.wakes(s.drop(store.Dropping{Ticket: "late"}), "two")
		s.state(store.LocksWaiting, s.take(ticket("later", 5, 0), one("x", 1))) // no overtaking of who can go
	})
	onBoth(t, func(s *lockScene) {
		ordered := func(name string) store.Want {
			return store.Want{Name: name, Permits: 1, Limit: 1, Ordered: true, Longest: 9}
		}
		s.take(ticket("h", 1, 0), ordered("x"))
		s.take(ticket("i", 2, 0), ordered("y"))
		s.take(ticket("two", 3, 0), ordered("x"), ordered("y"))
		s.take(ticket("late", 4, 0), ordered("x"))
		s.wakes(s.drop(store.Dropping{Ticket: "h"}))
		s.state(store.LocksWaiting, s.take(ticket("late", 4, 0), ordered("x")))
		s.wakes(s.drop(store.Dropping{Ticket: "i"}), "two")
	})
}

func TestWhatBecomesOfWhoComesWhenALockIsBusy(t *testing.T) {
	kind := func(k store.OnBusy) store.Want {
		return store.Want{Name: "x", Permits: 1, Limit: 1, OnBusy: k, Longest: 2}
	}
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), kind(store.Queue))
		s.take(ticket("a", 2, 0), kind(store.Queue))
		s.take(ticket("b", 3, 0), kind(store.Queue))
		s.state(store.LocksQueueFull, s.take(ticket("c", 4, 0), kind(store.Queue)))
		s.state(store.LocksWaiting, s.take(ticket("b", 9, 0), kind(store.Queue))) // it has its place
		s.state(store.LocksBusy, s.take(ticket("d", 5, 0), kind(store.DropNewest)))
	})
	// mutation: refuse without the word in the place lets a superseded run in later.
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), kind(store.KeepLatest))
		s.state(store.LocksWaiting, s.take(ticket("a", 2, 0), kind(store.KeepLatest)))
		newer := s.take(ticket("b", 3, 9), kind(store.KeepLatest))
		s.state(store.LocksWaiting, newer)
		s.wakes(newer.Wake, "a")
		s.state(store.LocksSuperseded, s.take(ticket("a", 2, 0), kind(store.KeepLatest)))
		s.drop(store.Dropping{Ticket: "h"})
		s.state(store.LocksSuperseded, s.take(ticket("a", 7, 0), kind(store.KeepLatest)))
		s.state(store.LocksHeld, s.take(ticket("b", 3, 9), kind(store.KeepLatest)))
	})
	// It left the queue, as its slot was busy, before it was told.
	// mutation: locks_drop.lua that drops the word of who is not over.
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), kind(store.KeepLatest))
		s.take(ticket("a", 2, 0), kind(store.KeepLatest))
		s.take(ticket("b", 3, 0), kind(store.KeepLatest))
		s.drop(store.Dropping{Ticket: "a", Seen: "4"})
		s.drop(store.Dropping{Ticket: "h"})
		s.state(store.LocksHeld, s.take(ticket("b", 3, 0), kind(store.KeepLatest)))
		s.state(store.LocksSuperseded, s.take(ticket("a", 4, 0), kind(store.KeepLatest)))
		s.drop(store.Dropping{Ticket: "a"})
		s.state(store.LocksWaiting, s.take(ticket("a", 4, 0), kind(store.Queue)))
	})
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), kind(store.CancelOldest))
		a := s.take(ticket("a", 2, 0), kind(store.CancelOldest))
		s.cancels(a, "x:h")
		s.state(store.LocksWaiting, s.take(ticket("b", 3, 0), kind(store.CancelOldest)))
		s.state(store.LocksSuperseded, s.take(ticket("a", 2, 0), kind(store.CancelOldest)))
	})
}

// Whoever comes forward as another leaves the line is woken: nobody polls.
//
// mutations: locks_take.lua that does not touch the locks of who is superseded, whose priority was
// changed, or who is refused while it has a place, makes this fail.
func TestWhoComesForwardIsWoken(t *testing.T) {
	of := func(lock string, kind store.OnBusy) store.Want {
		return store.Want{Name: lock, Permits: 1, Limit: 1, OnBusy: kind, Longest: 9, Ordered: true}
	}
	// b is free, and y is the first in its line: it waits for a. z is behind it.
	behind := func(s *lockScene, kind store.OnBusy) {
		s.take(ticket("h", 1, 0), of("a", kind))
		s.take(ticket("i", 2, 0), of("b", store.Queue))
		s.state(store.LocksWaiting, s.take(ticket("y", 3, 0), of("a", kind), of("b", store.Queue)))
		s.state(store.LocksWaiting, s.take(ticket("z", 4, 0), of("b", store.Queue)))
		s.wakes(s.drop(store.Dropping{Ticket: "i"}))
	}
	onBoth(t, func(s *lockScene) {
		behind(s, store.KeepLatest)
		s.wakes(s.take(ticket("n", 5, 0), of("a", store.KeepLatest)).Wake, "y", "z")
		s.state(store.LocksHeld, s.take(ticket("z", 4, 0), of("b", store.Queue)))
	})
	onBoth(t, func(s *lockScene) {
		behind(s, store.Queue)
		s.wakes(s.take(ticket("y", 6, -1), of("a", store.Queue), of("b", store.Queue)).Wake, "z")
	})
	onBoth(t, func(s *lockScene) { // the semaphore was edited
		behind(s, store.Queue)
		busy := s.take(ticket("y", 6, 0), of("a", store.DropNewest), of("b", store.Queue))
		s.state(store.LocksBusy, busy)
		s.wakes(busy.Wake, "z")
	})
	onBoth(t, func(s *lockScene) {
		behind(s, store.Queue)
		s.take(ticket("n", 5, 0), of("a", store.Queue))
		late := s.take(ticket("y", 6, 0), of("a", store.KeepLatest), of("b", store.Queue))
		s.state(store.LocksSuperseded, late)
		s.wakes(late.Wake, "z")
	})
	// Of two that wait for a rate the first knows its time. It goes behind the other.
	onBoth(t, func(s *lockScene) {
		rate := limited(atMost(1, time.Hour))
		s.take(ticket("h", 1, 0), rate)
		if first := s.take(ticket("r", 2, 5), rate); first.Rest == 0 {
			t.Errorf("first in line: %+v", first)
		}
		s.state(store.LocksWaiting, s.take(ticket("s", 3, 0), rate))
		moved := s.take(ticket("r", 4, -5), rate)
		if moved.Rest != 0 {
			t.Errorf("behind the other: %+v", moved)
		}
		s.wakes(moved.Wake, "s")
	})
}

// atMost is a rate of a lock that was made after the data was opened.
func atMost(starts int, period time.Duration) *store.Rate {
	return &store.Rate{Starts: starts, Period: period, Since: time.Now().Add(24 * time.Hour)}
}

func limited(rate *store.Rate) store.Want {
	return store.Want{Name: "x", Permits: 1, Limit: 5, Longest: 9, Rate: rate}
}

// mutations: each of these makes a test of rates fail: a script that does not note what begins, or
// not what it promises to those before; toosoon that trusts data from before the loss; starts that
// believes a clock that was ahead, or forgets nothing; nobody who is woken to ask, or everybody who
// is told when; rates of those before that are out of date; DropNewest that waits.
//
// Two may begin in an hour. Who comes third waits, and is the only one that knows how long; who
// comes fourth is told when the third is gone.
func TestARateBoundsHowManyBegin(t *testing.T) {
	rate := limited(atMost(2, time.Hour))
	onBoth(t, func(s *lockScene) {
		s.state(store.LocksHeld, s.take(ticket("a", 1, 0), rate))
		s.wakes(s.drop(store.Dropping{Ticket: "a"}))
		s.state(store.LocksHeld, s.take(ticket("b", 2, 0), rate))
		third := s.take(ticket("c", 3, 0), rate)
		s.state(store.LocksWaiting, third)
		if third.Rest == 0 {
			t.Errorf("third: %+v", third)
		}
		if fourth := s.take(ticket("d", 4, 0), rate); fourth.Rest != 0 || fourth.Position != 2 {
			t.Errorf("fourth: %+v", fourth)
		}
		s.wakes(s.drop(store.Dropping{Ticket: "b"}), "c")
		s.wakes(s.drop(store.Dropping{Ticket: "c"}), "d")
		if fourth := s.take(ticket("d", 4, 0), rate); fourth.Rest == 0 {
			t.Errorf("first in line: %+v", fourth)
		}
		s.state(store.LocksBusy, s.take(ticket("e", 5, 0), store.Want{Name: "x", Permits: 1, Limit: 5, OnBusy: store.DropNewest, Longest: 9, Rate: rate.Rate}))
		s.state(store.LocksHeld, s.take(ticket("d", 4, 0), limited(atMost(3, time.Hour)))) // it was raised
		s.state(store.LocksWaiting, s.take(ticket("f", 6, 0), limited(atMost(3, time.Hour))))
	})
}

// Of three that wait for permits two can begin, by the rate: the first is woken to take, the second
// to ask how long. One that comes when the rate was raised does not overtake who waits.
func TestARateCountsThoseBefore(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		all := limited(atMost(2, time.Hour))
		all.Permits = all.Limit
		s.take(ticket("a", 1, 0), all)
		for i, id := range []string{"b", "c", "d"} {
			s.take(ticket(id, 2+i, 0), limited(atMost(2, time.Hour)))
		}
		s.wakes(s.drop(store.Dropping{Ticket: "a"}), "b", "c")
		s.state(store.LocksHeld, s.take(ticket("b", 2, 0), limited(atMost(2, time.Hour))))
		s.state(store.LocksWaiting, s.take(ticket("e", 5, 0), limited(atMost(3, time.Hour))))
		s.state(store.LocksHeld, s.take(ticket("c", 3, 0), limited(atMost(3, time.Hour))))
	})
}

// A lock that was there before the data was lost may have begun as often as it may: nobody begins
// for one period.
func TestAfterALossARateBeginsAnew(t *testing.T) {
	old := func(period time.Duration) store.Want {
		return limited(&store.Rate{Starts: 2, Period: period, Since: time.Unix(opened-1, 0)})
	}
	onBoth(t, func(s *lockScene) {
		if a := s.take(ticket("a", 1, 0), old(time.Hour)); a.State != store.LocksWaiting || a.Rest == 0 {
			t.Errorf("after the loss: %+v", a)
		}
		// Data that a server brought back is opened anew: it has an opening of its own.
		if err := errors.Join(s.client.HSet(t.Context(), "{adm-locks}:holds", ":opened", 1).Err(), s.client.HDel(t.Context(), "{adm-locks}:holds", ":epoch").Err()); err != nil {
			t.Fatal(err)
		}
		s.rebuild()
		if a, err := s.store.TakeLocks(t.Context(), ticket("a", 2, 0), []store.Want{old(time.Hour)}); err != nil || a.State != store.LocksWaiting {
			t.Errorf("after it was brought back: %+v, %v", a, err)
		}
		over := func() bool {
			a, err := s.store.TakeLocks(t.Context(), ticket("a", 2, 0), []store.Want{old(time.Millisecond)})
			return err == nil && a.State == store.LocksHeld
		}
		for begin := time.Now(); !over(); {
			if time.Since(begin) > time.Minute {
				t.Fatal("a millisecond is over, and nobody begins")
			}
		}
	})
}

// A server whose clock was a day ahead does not stop anybody for a day: what it noted is over after
// one period.
func TestATimeThatIsStillToComeIsThePresent(t *testing.T) {
	const period = 200 * time.Millisecond
	ahead := time.Now().Add(24 * time.Hour).UnixMilli()
	for name, c := range map[string]struct {
		field, value string
		rate         *store.Rate
	}{
		"of a start":     {"sx", fmt.Sprintf("200 %d", ahead), atMost(1, period)},
		"of the opening": {":opened", strconv.FormatInt(ahead, 10), &store.Rate{Starts: 1, Period: period, Since: time.Unix(1, 0)}},
		"not known":      {":opened", "", &store.Rate{Starts: 1, Period: period, Since: time.Unix(1, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(s *lockScene) {
				if err := s.client.HSet(t.Context(), "{adm-locks}:holds", c.field, c.value).Err(); err != nil {
					t.Fatal(err)
				}
				for begin := time.Now(); ; {
					a, err := s.store.TakeLocks(t.Context(), ticket("a", 1, 0), []store.Want{limited(c.rate)})
					if err != nil || a.Rest > period || time.Since(begin) > time.Minute {
						t.Fatalf("after %s: %+v, %v", time.Since(begin), a, err)
					}
					if a.State == store.LocksHeld {
						return
					}
					<-time.After(a.Rest)
				}
			})
		})
	}
}

// In no period of 100 ms more than three begin, by the time that Redis tells: fences are that.
func TestNoPeriodHasMoreThanItsRate(t *testing.T) {
	const starts, period, tickets = 3, 100, 12
	onBoth(t, func(s *lockScene) {
		var fences []int64
		rate := limited(atMost(starts, period*time.Millisecond))
		for i := range tickets {
			k := ticket(fmt.Sprint("t", i), i+1, 0)
			for {
				a, err := s.store.TakeLocks(t.Context(), k, []store.Want{rate})
				if err != nil {
					t.Fatal(err)
				}
				if a.State == store.LocksHeld {
					fences = append(fences, a.Fence)
					break
				}
				if a.Rest <= 0 || a.Rest > period*time.Millisecond {
					t.Fatalf("rest %s of %d ms", a.Rest, period)
				}
				<-time.After(a.Rest)
			}
			if _, err := s.store.DropLocks(t.Context(), store.Dropping{Ticket: k.ID}); err != nil {
				t.Fatal(err)
			}
		}
		noted, err := s.client.HGet(t.Context(), "{adm-locks}:holds", "sx").Result()
		if n := len(strings.Fields(noted)); err != nil || n > 2+starts {
			t.Errorf("what is over stays: %q, %v", noted, err)
		}
		for i := starts; i < tickets; i++ {
			if fences[i]-fences[i-starts] < period-starts { // fences may be ahead by as many as there were in a millisecond
				t.Errorf("%d begin in %d ms: %v", starts+1, fences[i]-fences[i-starts], fences)
			}
		}
	})
}

// mutation: a fence that begins at 1 after a loss makes this fail.
func TestFencesGrowAlsoAfterALoss(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.take(ticket("a", 1, 0), one("x", 1))
		lost := s.table.Holds["a"]
		lost.Fence = s.last + 1_000_000_000 // of a server whose clock was ahead
		s.last = lost.Fence
		s.drop(store.Dropping{Ticket: "a"})
		if _, err := s.store.RestoreLocks(t.Context(), "", s.last, nil); err != nil {
			t.Fatal(err)
		}
		s.take(ticket("b", 2, 0), one("x", 1))
	})
}

// What a resync restores had a place, perhaps: who has its locks is in nobody's way.
//
// mutation: locks_restore.lua without leave makes this fail.
func TestAHoldThatIsRestoredLeavesTheLine(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), one("x", 1))
		s.take(ticket("a", 2, 0), one("x", 1))
		h := store.Holding{Ticket: ticket("a", 3, 0), Fence: s.table.Holds["h"].Fence + 1, Locks: []store.Hold{{Name: "x", Permits: 1}}}
		s.table.Restore("", h.Fence, h)
		if _, err := s.store.RestoreLocks(t.Context(), "", h.Fence, []store.Holding{h}); err != nil {
			t.Fatal(err)
		}
		s.same()
	})
}

// A rebuild counts what is held anew: sums of before may be wrong, holds of before stay until the
// resync, and one that is restored twice counts once.
//
// mutations: locks_restore.lua that keeps the sums, that does not count the holds of before, or
// without quit, makes this fail.
func TestARebuildCountsAnew(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		holds := "{adm-locks}:holds"
		s.take(ticket("a", 1, 0), one("x", 3))
		if err := errors.Join(s.client.HDel(t.Context(), holds, ":epoch").Err(), s.client.HSet(t.Context(), holds, "ux", 7).Err()); err != nil {
			t.Fatal(err)
		}
		b := store.Holding{Ticket: ticket("b", 1, 0), Fence: 1, Locks: []store.Hold{{Name: "x", Permits: 1}}}
		s.rebuild(b)
		for range 2 {
			if _, err := s.store.RestoreLocks(t.Context(), "", 1, []store.Holding{b}); err != nil {
				t.Fatal(err)
			}
		}
		s.state(store.LocksHeld, s.take(ticket("c", 2, 0), one("x", 3)))
		s.state(store.LocksWaiting, s.take(ticket("d", 2, 0), one("x", 3)))
	})
}

// Redis may evict the places, and leave the queue, whose ghosts would stop everybody.
//
// mutation: heal that does nothing makes this fail.
func TestWhoIsLeftInAQueueWithoutAPlaceStopsNobody(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		full := store.Want{Name: "x", Permits: 1, Limit: 1, Longest: 1}
		s.take(ticket("h", 1, 0), full)
		s.state(store.LocksWaiting, s.take(ticket("ghost", 2, 0), full))
		if err := s.client.Del(t.Context(), "{adm-locks}:places").Err(); err != nil {
			t.Fatal(err)
		}
		clear(s.table.Places)
		s.state(store.LocksWaiting, s.take(ticket("b", 3, 0), full))
	})
}

// Redis may evict the holders of all locks, and leave the holds. Others have entered theirs since.
//
// mutations: locks_snapshot.lua that enters no holders, or only where there are none at all, makes
// this fail.
func TestWhoHoldsIsFoundAgainAfterTheHoldersWereEvicted(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		newest := store.Want{Name: "x", Permits: 1, Limit: 1, Longest: 9, OnBusy: store.CancelOldest}
		s.take(ticket("h", 1, 0), newest, one("y", 2))
		if err := s.client.Del(t.Context(), holdersKey).Err(); err != nil {
			t.Fatal(err)
		}
		s.take(ticket("other", 2, 0), one("z", 1))
		s.same() // a resync reads all there is
		a := s.take(ticket("a", 3, 0), newest)
		s.cancels(a, "x:h")
		if !slices.Equal(a.Holders, []string{"team/h"}) {
			t.Errorf("holders %v", a.Holders)
		}
		s.drop(store.Dropping{Ticket: "h"}, store.Dropping{Ticket: "other"})
		if n := s.client.ZCard(t.Context(), holdersKey).Val(); n != 0 {
			t.Errorf("%d holders are left of nobody", n)
		}
	})
}

// TestLocksAreAsTheReference plays random calls on the scripts and on the reference.
func TestLocksAreAsTheReference(t *testing.T) {
	norace.Only(t)
	for seed := range uint64(9) {
		onBoth(t, func(s *lockScene) { s.random(rand.New(rand.NewPCG(seed, 1)), 300, seed%3 > 0) })
	}
}
