// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rights"
)

// portion is about how many fields a call reads.
const portion = 1000

func waiterID(i int) string { return fmt.Sprint("w", i) }

func lockOf(i int) string { return fmt.Sprint("lock", i) }

// whole fails the test unless a snapshot has so many holds and waiters, each once.
func whole(t *testing.T, got store.LocksSnapshot, err error, holds, waiters int) {
	t.Helper()
	seen := map[string]bool{}
	for _, h := range got.Holds {
		seen[h.Ticket.ID] = true
	}
	for _, w := range got.Waiters {
		seen[w.Ticket.ID] = true
	}
	if err != nil || len(got.Holds) != holds || len(got.Waiters) != waiters || len(seen) != holds+waiters {
		t.Fatalf("%d holds and %d waiters, of %d tickets, want %d and %d; %v", len(got.Holds), len(got.Waiters), len(seen), holds, waiters, err)
	}
}

// All of Redis waits for a script, and an answer has a second: what there is of locks is read in
// portions, little of it in one call.
//
// mutations: locks_snapshot.lua that reads all at once, or always in several calls,
// makes this fail.
func TestManyLocksAreReadInPortions(t *testing.T) {
	s, quota, asked := watched(t)
	got, err := quota.SnapshotLocks(t.Context())
	if whole(t, got, err, 0, 0); len(asked.args) != 1 {
		t.Errorf("nothing is read in %d calls", len(asked.args))
	}
	const holds, waiters = 10_000, 30_000
	s.holds(holds)
	s.waits(waiters, waiterID, lockOf)
	asked.args, asked.answers = nil, nil
	got, err = quota.SnapshotLocks(t.Context())
	whole(t, got, err, holds, waiters)
	for i, answer := range asked.answers {
		tickets := 0
		for _, part := range answer {
			list, _ := part.([]any)
			tickets += len(list) / 2
		}
		if tickets > 4*portion {
			t.Errorf("answer %d has %d tickets", i+1, tickets)
		}
	}
	if n := len(asked.args); n < waiters/portion/2 || n > 4*(waiters+2*holds)/portion {
		t.Errorf("it is read in %d calls", n)
	}
	s.same()
}

// The resync would give its locks to others, or call a hold missing, if somebody were in neither.
//
// mutation: locks_snapshot.lua that reads holds before places makes this fail.
func TestWhoGetsItsLocksWhileTheyAreReadIsAPlaceOrAHold(t *testing.T) {
	const waiters = 3000
	s, quota, asked := watched(t)
	s.waits(waiters, waiterID, lockOf)
	asked.after = func(n int, answer []any) []any {
		for i := 0; n == 1 && i < waiters; i += waiters / 200 {
			if a, err := s.store.TakeLocks(t.Context(), ticket(waiterID(i), i+1, 0), []store.Want{one(lockOf(i), 1)}); err != nil || a.State != store.LocksHeld {
				t.Errorf("%s: %+v, %v", waiterID(i), a, err)
			}
		}
		return answer
	}
	got, err := quota.SnapshotLocks(t.Context())
	if err != nil || len(asked.args) < 2 || len(got.Holds) != 200 {
		t.Fatalf("%d holds in %d calls, %v", len(got.Holds), len(asked.args), err)
	}
	there := map[string]bool{}
	for _, h := range got.Holds {
		there[h.Ticket.ID] = true
	}
	for _, w := range got.Waiters {
		there[w.Ticket.ID] = true
	}
	if len(there) != waiters {
		t.Errorf("%d of %d are a place or a hold", len(there), waiters)
	}
}

// While Redis moves the fields of a hash to a larger table it may tell of one twice.
//
// mutation: portions that are only put one after the other make this fail.
func TestATicketThatIsReadTwiceIsOne(t *testing.T) {
	const holds, waiters = 1500, 2500
	s, quota, asked := watched(t)
	s.holds(holds)
	s.waits(waiters, waiterID, lockOf)
	var read [2][]any // holds and places of all portions
	asked.after = func(_ int, answer []any) []any {
		for i := range read {
			part, _ := answer[2+i].([]any)
			read[i] = append(read[i], part...)
			answer[2+i] = slices.Clone(read[i])
		}
		return answer
	}
	got, err := quota.SnapshotLocks(t.Context())
	whole(t, got, err, holds, waiters)
	if len(asked.args) < 4 {
		t.Errorf("it is read in %d calls", len(asked.args))
	}
}

// mutation: a snapshot that does not compare the terms makes this fail: the resync would take all
// that it did not read for missing, or over.
func TestWhatWasLostWhileItIsReadIsNoSnapshot(t *testing.T) {
	s, quota, asked := watched(t)
	s.waits(3*portion, waiterID, lockOf)
	lost := func(n int, answer []any) []any {
		if n == 1 {
			if err := s.client.FlushAll(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			s.rebuild()
		}
		return answer
	}
	asked.after = lost
	got, err := quota.SnapshotLocks(t.Context())
	_, closed := errors.AsType[*store.RebuildingError](err)
	if _, unavailable := errors.AsType[*store.UnavailableError](err); !unavailable || closed || len(asked.args) != 2 || len(got.Waiters) > 0 {
		t.Errorf("%v after %d calls", err, len(asked.args))
	}
}

// Whoever set up Redis for an older operator gave its account no HSCAN.
//
// mutation: locks_snapshot.lua that does not go on without HSCAN makes this fail, as do rights
// without HSCAN.
func TestAnAccountThatMayNotScanReadsAll(t *testing.T) {
	const holds, waiters = 1500, 2500
	s, _, _ := watched(t)
	s.holds(holds)
	s.waits(waiters, waiterID, lockOf)
	for name, c := range map[string]struct {
		lacks string
		once  bool
	}{"older": {lacks: "+hscan", once: true}, "newer": {}} {
		user := []any{"ACL", "SETUSER", name, "on", ">word"}
		for _, right := range rights.Redis(false) {
			if right != c.lacks {
				user = append(user, right)
			}
		}
		if err := s.client.Do(t.Context(), user...).Err(); err != nil {
			t.Fatal(err)
		}
		asked, client := &calls{}, redis.NewClient(&redis.Options{
			Addr: s.client.Options().Addr, Username: name, Password: "word", DisableIdentity: true, ReadTimeout: time.Minute,
		})
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(asked)
		got, err := store.New(client, store.Options{Timeout: time.Minute}).SnapshotLocks(t.Context())
		whole(t, got, err, holds, waiters)
		if (len(asked.args) == 1) != c.once {
			t.Errorf("%s: read in %d calls", name, len(asked.args))
		}
	}
}

// mutations: locks_snapshot.lua that forgets nothing, or all, or what begins in the period, or that
// lets a time stay which is still to come, makes this fail.
func TestWhatBeganIsForgottenWhenItIsOver(t *testing.T) {
	const hour, day = 3_600_000, 86_400_000
	now := time.Now().UnixMilli()
	for name, c := range map[string]struct {
		period int64
		times  []int64
		stays  bool
		ahead  bool
	}{
		"nothing began":                {period: hour},
		"all is over":                  {period: hour, times: []int64{now - 2*day, now - day}},
		"the last is in the period":    {period: hour, times: []int64{now - 2*day, now - 1000}, stays: true},
		"many":                         {period: day, times: slices.Repeat([]int64{now - hour}, 1000), stays: true},
		"the last is still to come":    {period: hour, times: []int64{now - day, now + day}, stays: true, ahead: true},
		"all are still to come":        {period: hour, times: []int64{now + day, now + day}, stays: true, ahead: true},
		"a short period, and to come":  {period: 1, times: []int64{now + day}, stays: true, ahead: true},
		"a short period, and is over ": {period: 1, times: []int64{now - 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(s *lockScene) {
				text := fmt.Sprint(c.period)
				for _, at := range c.times {
					text += fmt.Sprint(" ", at)
				}
				if err := s.client.HSet(t.Context(), holdsKey, "sx", text).Err(); err != nil {
					t.Fatal(err)
				}
				s.same()
				got, err := s.client.HGet(t.Context(), holdsKey, "sx").Result()
				words := strings.Fields(got)
				switch {
				case !c.stays:
					if !errors.Is(err, redis.Nil) {
						t.Errorf("it stays: %.100q, %v", got, err)
					}
				case err != nil || len(words) != 1+len(c.times):
					t.Errorf("it is %.100q, %v", got, err)
				case c.ahead:
					if last, err := strconv.ParseInt(words[len(words)-1], 10, 64); err != nil || last < now-hour || last > now+hour {
						t.Errorf("what is still to come became %q", got)
					}
				case got != text:
					t.Errorf("it became %.100q", got)
				}
			})
		})
	}
}

// During a rolling update an older replica takes locks, and counts nothing but their permits.
//
// mutation: locks_snapshot.lua that enters holders only where there are fewer than a count of the
// newer replicas says makes this fail.
func TestWhoHoldsByAnOlderReplicaIsFoundAgainAfterTheHoldersWereEvicted(t *testing.T) {
	onBoth(t, func(s *lockScene) {
		for _, of := range []string{"a", "b", "c"} {
			s.take(ticket(of, 2, 0), one("lock-"+of, 1))
		}
		err := s.client.Del(t.Context(), holdersKey).Err()
		for _, of := range []string{"x", "y", "z"} {
			hold := map[string]any{"holder-" + of: "1 5 team/h team/h 1 " + of, "u" + of: 1}
			member := redis.Z{Member: of + " 0000000000000005 older-" + of}
			err = errors.Join(err, s.client.HSet(t.Context(), holdsKey, hold).Err(), s.client.ZAdd(t.Context(), holdersKey, member).Err())
		}
		_, failed := s.store.SnapshotLocks(t.Context())
		if n := s.client.ZCard(t.Context(), holdersKey).Val(); n != 6 || err != nil || failed != nil {
			t.Errorf("%d holders of 6 locks are found, %v, %v", n, err, failed)
		}
	})
}
