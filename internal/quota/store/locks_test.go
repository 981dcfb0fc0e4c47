// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/quota/store/locktable"
)

// lockScene plays the same calls on the scripts and on the reference.
type lockScene struct {
	t     *testing.T
	store *store.Store
	table *locktable.Table
	last  int64 // fence that was given last
	seq   int
}

func newLockScene(t *testing.T, client *redis.Client) *lockScene {
	t.Helper()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s := &lockScene{t: t, store: store.New(client, store.Options{}), table: locktable.New()}
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
	if _, err := s.store.RestoreLocks(s.t.Context(), token, s.last, all); err != nil {
		s.t.Fatal(err)
	}
}

func ticket(id string, version, priority int) store.Ticket {
	return store.Ticket{ID: id, Run: "team/" + id, Tree: "team/" + id, Version: strconv.Itoa(version), Priority: int32(priority), Created: time.Unix(1000, 0)}
}

func one(name string, limit int) store.Want {
	return store.Want{Name: name, Permits: 1, Limit: limit, Longest: 100}
}

// take asks both, and compares what they say.
func (s *lockScene) take(k store.Ticket, wants ...store.Want) store.LocksAnswer {
	s.t.Helper()
	_, held := s.table.Holds[k.ID]
	want, open := s.table.Take(k, wants)
	got, err := s.store.TakeLocks(s.t.Context(), k, wants)
	if err != nil || !open {
		s.t.Fatalf("%s: open %t, %v", k.ID, open, err)
	}
	ignore := cmpopts.IgnoreFields(store.LocksAnswer{}, "Fence", "Holders", "Cancel", "Used", "Waiting", "Lock")
	byTicket := cmpopts.SortSlices(func(a, b store.Wake) bool { return a.Ticket < b.Ticket })
	if diff := cmp.Diff(want, got, ignore, byTicket, cmpopts.EquateEmpty()); diff != "" {
		s.t.Fatalf("%s wants %v: reference -, script +\n%s", k.ID, wants, diff)
	}
	if got.State == store.LocksHeld && !held {
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
	got, holds, err := s.store.DropLocks(s.t.Context(), all...)
	if err != nil {
		s.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || holds != wantHolds {
		s.t.Fatalf("drop %v: %d holds, want %d; reference -, script +\n%s", all, holds, wantHolds, diff)
	}
	s.same()
	return got
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
	for _, w := range got.Waiters {
		want := s.table.Places[w.Ticket.ID]
		if w.Refused != want.Refused || len(w.Wants) != len(want.Wants) || w.Ticket.Priority != want.Ticket.Priority {
			s.t.Fatalf("place %+v, want %+v", w, want)
		}
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
		s.state(store.LocksWaiting, s.take(ticket("b", 6, 0), one("x", 1)))
		s.take(ticket("a", 10, 0), one("x", 1)) // asked again, after a write that did not have it
		s.take(ticket("a", 5, 0), one("x", 1))  // by a process that was paused
		s.drop(store.Dropping{Ticket: "a", Seen: "9"})
		s.state(store.LocksWaiting, s.take(ticket("b", 6, 0), one("x", 1)))
		s.wakes(s.drop(store.Dropping{Ticket: "a", Seen: "11"}), "b")
	})
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
	onBoth(t, func(s *lockScene) {
		s.take(ticket("h", 1, 0), kind(store.CancelOldest))
		a := s.take(ticket("a", 2, 0), kind(store.CancelOldest))
		if !slices.Equal(a.Cancel, []string{"team/h"}) {
			t.Errorf("cancels %v", a.Cancel)
		}
		s.state(store.LocksWaiting, s.take(ticket("b", 3, 0), kind(store.CancelOldest)))
		s.state(store.LocksSuperseded, s.take(ticket("a", 2, 0), kind(store.CancelOldest)))
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

// TestLocksAreAsTheReference plays random calls on the scripts and on the reference.
func TestLocksAreAsTheReference(t *testing.T) {
	for seed := range uint64(6) {
		onBoth(t, func(s *lockScene) { s.random(rand.New(rand.NewPCG(seed, 1)), 300) })
	}
}

func (s *lockScene) random(r *rand.Rand, steps int) {
	limits, kinds := []int{1, 2, 3}, []store.OnBusy{store.Queue, store.Queue, store.KeepLatest, store.DropNewest}
	for range steps {
		s.seq++
		id := fmt.Sprint("t", r.IntN(12))
		switch r.IntN(10) {
		case 0:
			s.drop(store.Dropping{Ticket: id, Seen: strconv.Itoa(r.IntN(s.seq) + 1)})
		case 1, 2, 3:
			s.drop(store.Dropping{Ticket: id}, store.Dropping{Ticket: fmt.Sprint("t", r.IntN(12))})
		default:
			var wants []store.Want
			n := int(id[len(id)-1] - '0') // the locks of a ticket are always the same
			for l := range 3 {
				if (n>>l)&1 == 1 || n == l {
					wants = append(wants, store.Want{
						Name: fmt.Sprint("l", l), Permits: 1 + (n+l)%limits[l], Limit: limits[l], Ordered: l == 1, OnBusy: kinds[(n+l)%4], Longest: 4,
					})
				}
			}
			if len(wants) > 0 {
				s.take(ticket(id, s.seq, n%3), wants...)
			}
		}
	}
}
