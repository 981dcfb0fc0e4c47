// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// closes loses the epoch of locks, and no more: their sums, and the index, are wrong, too.
func (s *lockScene) closes() {
	s.t.Helper()
	ctx := s.t.Context()
	err := errors.Join(s.client.HDel(ctx, holdsKey, ":epoch").Err(), s.client.HSet(ctx, holdsKey, "uown7", 9, "ugone", 5).Err(),
		s.client.ZAdd(ctx, holdersKey, redis.Z{Member: fmt.Sprintf("own3 %016d h3", 4)}, redis.Z{Member: "own3 0000000000000009 gone"}).Err())
	if err != nil {
		s.t.Fatal(err)
	}
}

// held are holds of one lock each, by tickets that the closed data does not have but for the first.
func held(n int) (all []store.Holding) {
	for i := range n {
		id := fmt.Sprint("new", i)
		if i == 0 {
			id = "h0"
		}
		all = append(all, store.Holding{Ticket: ticket(id, 10_000+i, 0), Fence: int64(10_000 + i), Locks: []store.Hold{{Name: fmt.Sprint("lock", i), Permits: 1}}})
	}
	return all
}

// sums compares the sums and the index with the holds: one permit each.
func (s *lockScene) sums(holds int) {
	s.t.Helper()
	all, err := s.client.HGetAll(s.t.Context(), holdsKey).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	sums, there := 0, 0
	for field, value := range all {
		switch {
		case strings.HasPrefix(field, "u") && value == "1":
			sums++
		case strings.HasPrefix(field, "u"):
			s.t.Errorf("%s of %s are held", value, field)
		case strings.HasPrefix(field, "h"):
			there++
		case field == ":recount":
			s.t.Errorf("%s is %q after the rebuild", field, value)
		}
	}
	index, err := s.client.ZCard(s.t.Context(), holdersKey).Result()
	if sums != holds || there != holds || index != int64(holds) || err != nil {
		s.t.Errorf("%d holds, %d sums and %d in the index, %v; want %d of each", there, sums, index, err, holds)
	}
}

// All of Redis waits for a script. So a rebuild of many locks is many short calls, and the last of
// them opens the data.
//
// mutations: a RestoreLocks that gives all in one call, a first portion that opens the data, and
// sums, or an index, of before that are kept, make this fail; so does a count of what the
// closed data holds without an end of its portions.
func TestARebuildOfLocksIsManyShortCalls(t *testing.T) {
	const before, entered = 2500, 600
	s, quota, asked := watched(t)
	s.holds(before)
	s.closes()
	token, err := quota.BeginLocks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked.args = nil
	asked.after = func(n int, answer []any) []any {
		_, err := s.store.DropLocks(t.Context())
		if _, closed := errors.AsType[*store.RebuildingError](err); closed != (answer[1] == "0") {
			t.Errorf("after call %d, which says %v, it is closed: %t", n, answer, closed)
		}
		return answer
	}
	added, err := quota.RestoreLocks(t.Context(), token, 20_000, held(entered))
	if err != nil || added != entered-1 {
		t.Fatalf("%d added, %v", added, err)
	}
	if len(asked.args) < 8 { // 5,000 fields, 2,500 of them once more, and three portions
		t.Errorf("%d calls", len(asked.args))
	}
	for _, args := range asked.args {
		if len(args) > 4+2*256 {
			t.Errorf("a call has %d arguments", len(args))
		}
	}
	s.sums(before + entered - 1)
}

// Two replicas rebuild at the same time, with the same token. Whatever one has counted, the other
// does not count again, and does not take away.
//
// mutations: a count that each caller begins anew, or that goes on after the data was opened, makes
// this fail.
func TestTwoRebuildsAtATimeCountOnce(t *testing.T) {
	const before, entered = 1500, 300
	for _, at := range []int{1, 2, 3, 4, 5, 6} {
		t.Run("the other one rebuilds after call "+strconv.Itoa(at), func(t *testing.T) {
			s, quota, asked := watched(t)
			s.holds(before)
			s.closes()
			token, err := quota.BeginLocks(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			asked.args, asked.after = nil, func(n int, answer []any) []any {
				if n == at {
					if _, err := s.store.RestoreLocks(t.Context(), token, 20_000, held(entered)); err != nil {
						t.Error(err)
					}
				}
				return answer
			}
			if _, err := quota.RestoreLocks(t.Context(), token, 20_000, held(entered)); err != nil || len(asked.args) < at {
				t.Errorf("%v after %d calls", err, len(asked.args))
			}
			s.sums(before + entered - 1)
		})
	}
}

// The data is lost again between two calls: the rebuild begins anew.
//
// mutation: a portion that is entered whatever its token makes this fail.
func TestARebuildWhoseDataIsLostBetweenItsCalls(t *testing.T) {
	for _, again := range []bool{false, true} {
		s, quota, asked := watched(t)
		s.holds(1500)
		s.closes()
		token, err := quota.BeginLocks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		asked.args, asked.after = nil, func(n int, answer []any) []any {
			if n == 2 {
				s.client.FlushAll(t.Context())
				if again { // somebody else begins the next one
					_, _ = s.store.BeginLocks(t.Context())
				}
			}
			return answer
		}
		if _, err := quota.RestoreLocks(t.Context(), token, 1, held(600)); !errors.Is(err, store.ErrRebuildLost) {
			t.Errorf("%v, want that it is lost", err)
		}
		if n, err := s.client.HLen(t.Context(), holdsKey).Result(); n > 1 || err != nil {
			t.Errorf("%d fields, %v", n, err)
		}
	}
}

// mutations: a store that tells each time makes this fail, as does one that tells nothing, or that
// tells where all is read in portions.
func TestThatAllIsReadAtOnceIsLoggedOnce(t *testing.T) {
	s, _, _ := watched(t)
	for name, c := range map[string]struct {
		right string
		want  int
	}{"older": {"-hscan", 1}, "newer": {"+hscan", 0}} {
		if err := s.client.Do(t.Context(), "ACL", "SETUSER", name, "on", ">word", "~*", "+@all", c.right).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: s.client.Options().Addr, Username: name, Password: "word", DisableIdentity: true})
		t.Cleanup(func() { _ = client.Close() })
		var lines []string
		quota := store.New(client, store.Options{Log: funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})})
		for range 3 {
			if _, err := quota.SnapshotLocks(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if len(lines) != c.want || c.want > 0 && !strings.Contains(lines[0], "+hscan") {
			t.Errorf("%s: logged %q, want %d lines", name, lines, c.want)
		}
	}
}

// Somebody saw a ticket wait, and judged that its wait has to end. It may have gone on since.
//
// mutation: locks_refuse.lua that looks at the ticket only makes this fail.
func TestOnlyTheWaitThatWasJudgedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*lockScene)
		refused   bool
		waits     string // lock
	}{
		"it waits on":                     {func(*lockScene) {}, true, "x"},
		"it asks again":                   {func(s *lockScene) { s.take(ticket("b", 9, 0), one("x", 1)) }, true, "x"},
		"it was granted its lock":         {func(s *lockScene) { s.drop(store.Dropping{Ticket: "a"}); s.take(ticket("b", 2, 0), one("x", 1)) }, false, ""},
		"it waits for something else":     {func(s *lockScene) { s.take(ticket("b", 9, 0), one("y", 1)) }, false, "y"},
		"it gave up, and waits once more": {func(s *lockScene) { s.drop(store.Dropping{Ticket: "b"}); s.take(ticket("b", 9, 0), one("x", 1)) }, false, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(s *lockScene) {
				s.take(ticket("a", 1, 0), one("x", 1))
				s.take(ticket("c", 1, 0), one("y", 1))
				s.state(store.LocksWaiting, s.take(ticket("b", 2, 0), one("x", 1)))
				judged := s.waiter("b")
				c.meanwhile(s)
				refused, err := s.store.RefuseLocks(t.Context(), judged, store.LocksDeadlock)
				if err != nil || refused != c.refused {
					t.Errorf("refused: %t, %v", refused, err)
				}
				w := s.waiter("b")
				if c.refused {
					s.state(store.LocksDeadlock, store.LocksAnswer{State: w.Refused})
				} else if w.Refused != "" || c.waits != "" && w.Wants[0].Name != c.waits {
					t.Errorf("it is %+v", w)
				}
			})
		})
	}
}

func (s *lockScene) waiter(id string) (w store.Waiter) {
	s.t.Helper()
	all, err := s.store.SnapshotLocks(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, one := range all.Waiters {
		if one.Ticket.ID == id {
			w = one
		}
	}
	return w
}
