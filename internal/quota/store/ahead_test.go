// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/shares"
)

// operatorsScene is a scene in which reservations stand as long as they do for operators.
func operatorsScene(t *testing.T, client *redis.Client) *scene {
	t.Helper()
	s := newScene(t, client, nil, 1)
	s.quota.scripts = loadScripts(longestReservation)
	must(t, s.quota.FinishRebuildKeys(t.Context(), "acme", s.beginsKeys(), nil), "rebuild keys")
	return s
}

// A server whose clock was a day ahead, as a reservation was made, keeps the slot from nobody for a
// day.
//
// mutations: heal of queue.lua, or of pool.lua, that looks only at ends that are over
// makes this fail.
func TestAReservationOfAClockThatWasAheadKeepsNoSlot(t *testing.T) {
	end := float64(time.Now().Add(24 * time.Hour).UnixMilli())
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := operatorsScene(t, client)
		s.reserves("never", true)
		must(t, client.ZAdd(t.Context(), s.quota.keys(acme())[3], redis.Z{Score: end, Member: "never"}).Err(), "set the clock back")
		s.reserves("next", true)
		s.holds(nil, nil, []string{"next"})
		s.admits(run("next", 0, 0))
		s.holds([]string{"next"}, nil, nil)

		pools, k := s.quota.Pools(), PoolOf("batch")
		token, err := pools.BeginRebuild(t.Context(), k)
		must(t, err, "begin")
		must(t, pools.FinishRebuild(t.Context(), k, token, nil), "finish")
		l := Limits{Max: 1, Shares: &shares.Limits{Version: 1, Total: 1, Max: 1}}
		reserves := func(uid string) {
			t.Helper()
			if a, err := pools.Reserve(t.Context(), k, l, "acme", run(uid, 0, 0), 10*time.Second); err != nil || !a.Admitted || a.Reserved != 1 {
				t.Fatalf("reserve for %s: %+v, %v", uid, a, err)
			}
		}
		reserves("never")
		must(t, client.ZAdd(t.Context(), pools.poolKeys(k)[3], redis.Z{Score: end, Member: "never"}).Err(), "set the clock back")
		reserves("next")
		if a, err := pools.Admit(t.Context(), k, l, "acme", run("next", 0, 0)); err != nil || !a.Admitted || a.Used != 1 {
			t.Errorf("admit: %+v, %v", a, err)
		}
	})
}

// Likewise an idempotency key: the run that it was reserved for was never created.
//
// mutations: claim.lua, Claims or release_key.lua that take an end that is far away for one that
// comes make this fail.
func TestAReservedKeyOfAClockThatWasAheadIsGivenUp(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := operatorsScene(t, client)
		value := claimOf("never").value() + " " + strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMilli(), 10)
		must(t, client.HSet(t.Context(), s.quota.claimKeys("acme")[0], field("report"), value).Err(), "set the clock back")
		want := claimOf("never")
		want.Lapsed = true
		if got, err := s.quota.ReserveKey(t.Context(), "acme", "report", claimOf("next"), 10*time.Second); got != want || err != nil {
			t.Errorf("reserve: %+v, %v; want %+v", got, err, want)
		}
		if list, err := s.quota.Claims(t.Context(), "acme"); err != nil || list["report"] != want {
			t.Errorf("listed: %+v, %v; want %+v", list, err, want)
		}
		must(t, ReleaseClaim(t.Context(), s.quota, "acme", "report", want), "release")
		s.claims("report", "next", "next")
	})
}

// What is reserved for longer than a minute is reserved for a minute: an end that is further away
// counts for none.
//
// mutation: endof without the bound makes this fail.
func TestAReservationStandsForAMinuteAtMost(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := operatorsScene(t, client)
		a, err := s.quota.Reserve(t.Context(), acme(), s.limits, run("r", 0, 0), time.Hour)
		if err != nil || !a.Admitted {
			t.Fatalf("reserve: %+v, %v", a, err)
		}
		b, err := s.quota.Snapshot(t.Context(), acme())
		if err != nil || len(b.Reserved) != 1 || b.Reserved[0].Left > longestReservation {
			t.Errorf("reserved: %+v, %v", b.Reserved, err)
		}
		if c, err := s.quota.ReserveKey(t.Context(), "acme", "report", claimOf("r"), time.Hour); err != nil || !c.Reserved {
			t.Errorf("key: %+v, %v", c, err)
		}
	})
}
