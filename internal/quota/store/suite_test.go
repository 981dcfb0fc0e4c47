// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// TestConformance is what the scripts must do, on a real Redis and on the stand-in, in both
// strategies; the stand-in is trusted because it passes.
func TestConformance(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		for strategy, lock := range bothStrategies() {
			for _, tests := range []map[string]func(*scene){admitSuite(), reserveSuite(), repairSuite()} {
				for name, test := range tests {
					t.Run(strategy+": "+name, func(t *testing.T) { test(newScene(t, client, lock, 2)) })
				}
			}
		}
	})
}

func admitSuite() map[string]func(*scene) {
	return map[string]func(*scene){
		// mutation: admit.lua with rank <= free makes this fail.
		"no more are in than the limit says": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.admits(run("b", 0, 0))
			s.waits(run("c", 0, 0), 1, "")
			s.holds([]string{"a", "b"}, []string{"c"}, nil)
		},
		// mutation: admit.lua without the look at the slots makes this fail.
		"who is in is admitted again, whatever the limit": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.limit(0).admits(run("a", 0, 0))
			s.holds([]string{"a"}, nil, nil)
		},
		"a limit of 0 admits none": func(s *scene) {
			s.limit(0).waits(run("a", 0, 0), 1, "")
		},
		"without a limit all are admitted, and counted by a limit that comes later": func(s *scene) {
			for _, uid := range []string{"a", "b", "c"} {
				s.limit(-1).admits(run(uid, 0, 0))
			}
			s.waits(run("d", 0, 0), 1, "")
			s.releases("a")
			s.releases("b", "d")
			s.admits(run("d", 0, 0))
		},
		// mutation: free.lua without HDEL of slots makes this fail.
		"a released slot goes to the next, who is named": func(s *scene) {
			s.admits(run("a", 0, 9))
			s.admits(run("b", 0, 8))
			s.waits(run("c", 0, 7), 1, "")
			s.waits(run("d", 0, 6), 2, "c")
			s.releases("a", "c")
			s.waits(run("d", 0, 6), 2, "c")
			s.admits(run("c", 0, 7))
			s.releases("a")
		},
		"as many are named as slots are free": func(s *scene) {
			for i, uid := range []string{"a", "b", "c"} {
				s.limit(0).waits(run(uid, 0, 9-i), i+1, []string{"", "a", "b"}[i])
			}
			s.releases("gone", "a", "b")
			s.limit(-1).releases("gone", "a", "b", "c")
			s.limit(0).releases("gone")
		},
		// mutation: member without the priority, without its inversion, or without zero-padding
		// makes this fail.
		"the order is priority, creation, name, UID": func(s *scene) {
			s.limits.Max = 0
			full := []Run{
				{UID: "1", Name: "z/z", Priority: math.MaxInt32, Created: time.Unix(9, 0)},
				{UID: "2", Name: "z/z", Priority: 10, Created: time.Unix(9, 0)},
				{UID: "3", Name: "z/z", Priority: 9, Created: time.Unix(-5, 0)},
				{UID: "4", Name: "z/z", Priority: 9, Created: time.Unix(9, 0)},
				{UID: "5", Name: "z/y", Priority: 9, Created: time.Unix(10, 0)},
				{UID: "6", Name: "z/y-b", Priority: 9, Created: time.Unix(10, 0)},
				{UID: "7", Name: "z/y-b", Priority: 9, Created: time.Unix(10, 0)},
				{UID: "8", Name: "a/a", Priority: 0, Created: time.Unix(1, 0)},
				{UID: "9", Name: "a/a", Priority: -1, Created: time.Unix(1, 0)},
				{UID: "10", Name: "a/a", Priority: math.MinInt32, Created: time.Unix(1, 0)},
			}
			var uids []string
			for i := range full {
				_, err := s.quota.Admit(s.t.Context(), acme(), s.limits, full[(i*7)%len(full)])
				must(s.t, err, "admit")
				uids = append(uids, full[i].UID)
			}
			s.holds(nil, uids, nil)
		},
		// mutation: admit.lua that keeps the old place makes this fail.
		"a priority that changes moves the run": func(s *scene) {
			s.limits.Max = 0
			s.waits(run("a", 0, 9), 1, "")
			s.waits(run("b", 0, 8), 2, "a")
			s.waits(run("b", 1, 8), 1, "")
			s.waits(run("a", 0, 9), 2, "b")
			s.holds(nil, []string{"b", "a"}, nil)
		},
		"a run that comes with a higher priority is let in before those that wait": func(s *scene) {
			s.admits(run("a", 0, 9))
			s.admits(run("b", 0, 8))
			s.waits(run("c", 0, 7), 1, "")
			s.waits(run("d", 5, 6), 1, "")
			s.releases("a", "d")
		},
		// mutation: admission only for the first in the queue makes this fail.
		"whoever is ahead and does not come blocks its own place only": func(s *scene) {
			s.limit(0).waits(run("gone", 0, 9), 1, "")
			s.admits(run("a", 0, 8))
			s.waits(run("b", 0, 7), 2, "gone")
			s.releases("gone", "b")
			s.admits(run("b", 0, 7))
		},
		"a limit that is raised lets in more": func(s *scene) {
			s.limit(1).admits(run("a", 0, 9))
			s.limit(1).waits(run("b", 0, 8), 1, "")
			next, err := s.quota.Next(s.t.Context(), acme(), s.limits)
			if diff := cmp.Diff(nextUp("b"), next); diff != "" || err != nil {
				s.t.Errorf("next (-want +got), %v:\n%s", err, diff)
			}
			s.admits(run("b", 0, 8))
		},
		"a limit that is lowered takes nothing, and lets in nobody until there is room": func(s *scene) {
			s.admits(run("a", 0, 9))
			s.admits(run("b", 0, 8))
			lowered := s.limit(1)
			lowered.waits(run("c", 0, 7), 1, "")
			lowered.releases("a")
			lowered.waits(run("c", 0, 7), 1, "")
			lowered.releases("b", "c")
			lowered.admits(run("c", 0, 7))
		},
		"a release may be repeated, and takes a place in line too": func(s *scene) {
			s.limit(0).waits(run("a", 0, 0), 1, "")
			s.releases("a")
			s.releases("a")
			s.holds(nil, nil, nil)
		},
		"policies and tenants have slots of their own": func(s *scene) {
			s.limits.Max = 1
			s.admits(run("a", 0, 0))
			for _, k := range []Key{{Policy: "other", Tenant: "acme"}, {Policy: "batch", Tenant: "other"}, {Tenant: "acme"}} {
				token, err := s.quota.BeginRebuild(s.t.Context(), k)
				must(s.t, err, "begin")
				must(s.t, s.quota.FinishRebuild(s.t.Context(), k, token, nil), "finish")
				if a, err := s.quota.Admit(s.t.Context(), k, s.limits, run("a", 0, 0)); !a.Admitted || a.Used != 1 || err != nil {
					s.t.Errorf("admit to %s: %+v, %v", k, a, err)
				}
			}
		},
		// mutation: scripts without heal make this fail: b comes before a.
		"who waits takes its place again when half of the line was evicted": func(s *scene) {
			for _, lost := range []int{1, 2} {
				s.limit(0).waits(run("a", 0, 9), 1, "")
				must(s.t, s.client.Del(s.t.Context(), s.quota.keys(acme())[lost]).Err(), "evict")
				s.limit(0).waits(run("b", 0, 8), 1, "")
				s.limit(0).waits(run("a", 0, 9), 1, "")
				s.holds(nil, []string{"a", "b"}, nil)
				s.releases("a", "b")
				s.releases("b")
			}
		},
	}
}

func reserveSuite() map[string]func(*scene) {
	return map[string]func(*scene){
		// mutation: room without the reservations makes this fail.
		"a reservation is kept for its run": func(s *scene) {
			s.reserves("r", true)
			s.admits(run("a", 0, 9))
			s.waits(run("b", 9, 9), 1, "")
			s.admits(run("r", 0, 0))
			s.holds([]string{"a", "r"}, []string{"b"}, nil)
		},
		// mutation: reserve.lua that counts slots only makes this fail.
		"no more are reserved than the limit says": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.reserves("r", true)
			s.reserves("q", false)
			s.reserves("r", true)
			s.holds([]string{"a"}, nil, []string{"r"})
		},
		"nothing is reserved while runs wait": func(s *scene) {
			s.limit(0).waits(run("a", 0, 9), 1, "")
			s.limit(0).waits(run("b", 0, 8), 2, "a")
			s.reserves("r", false)
			s.limit(3).reserves("r", true)
		},
		"who is in needs no reservation": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.limit(1).reserves("a", true)
			s.holds([]string{"a"}, nil, nil)
		},
		// mutation: heal without ZREMRANGEBYSCORE makes this fail.
		"a reservation ends": func(s *scene) {
			s.limits.Max = 1
			s.reserves("r", true)
			s.advance(30 * time.Second)
			s.waits(run("a", 0, 0), 1, "")
			s.advance(31 * time.Second)
			s.admits(run("a", 0, 0))
			s.waits(run("r", 0, 0), 1, "")
		},
		"asking again moves the end on": func(s *scene) {
			s.limits.Max = 1
			s.reserves("r", true)
			s.advance(40 * time.Second)
			s.reserves("r", true)
			s.advance(40 * time.Second)
			s.waits(run("a", 0, 0), 1, "")
		},
		"a reservation is released": func(s *scene) {
			s.reserves("r", true)
			s.releases("r")
			s.holds(nil, nil, nil)
		},
		// mutation: reserve.lua that ignores a ttl of 0 makes this fail.
		"with a ttl of 0 nothing is reserved": func(s *scene) {
			s.limits.Max = 1
			ask := func(uid string, want bool) {
				s.t.Helper()
				if a, err := s.quota.Reserve(s.t.Context(), acme(), s.limits, run(uid, 0, 0), 0); a.Admitted != want || err != nil {
					s.t.Fatalf("ask for %s: %+v, %v; want %v", uid, a, err, want)
				}
			}
			ask("r", true)
			s.holds(nil, nil, nil)
			s.reserves("r", true)
			ask("q", false)
			ask("r", true)
			s.holds(nil, nil, []string{"r"})
		},
		// mutation: admit.lua that counts the other reservations against one makes this fail: both
		// wait for each other.
		"a limit lowered below the reservations lets in as many as it says": func(s *scene) {
			s.reserves("q", true)
			s.reserves("r", true)
			s.limit(1).admits(run("r", 0, 0))
			s.limit(1).waits(run("q", 0, 0), 1, "")
			s.holds([]string{"r"}, []string{"q"}, nil)
		},
		"a limit lowered below the reservations takes those that ask again": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.reserves("r", true)
			s.limit(1).reserves("r", false)
			s.holds([]string{"a"}, nil, nil)
		},
		"without a limit all are reserved": func(s *scene) {
			for _, uid := range []string{"p", "q", "r"} {
				s.limit(-1).reserves(uid, true)
			}
			s.waits(run("a", 0, 0), 1, "")
		},
	}
}

func repairSuite() map[string]func(*scene) {
	return map[string]func(*scene){
		"what the book says": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.reserves("r", true)
			s.waits(run("b", -3, 7), 1, "")
			got, err := s.quota.Snapshot(s.t.Context(), acme())
			must(s.t, err, "book")
			if len(got.Slots) != 1 || len(got.Reserved) != 1 || got.Slots[0].Age > patience || got.Reserved[0].Left > time.Minute || got.Reserved[0].Left < time.Minute-patience {
				s.t.Errorf("book: %+v", got)
			}
			if diff := cmp.Diff([]Run{run("b", -3, 7)}, got.Queue); diff != "" {
				s.t.Errorf("line (-want +got):\n%s", diff)
			}
		},
		"what is restored is in, beyond the limit if need be, and stands in no line": func(s *scene) {
			s.admits(run("a", 0, 0))
			s.limit(1).waits(run("b", 0, 0), 1, "")
			s.reserves("c", false)
			must(s.t, s.quota.Restore(s.t.Context(), acme(), []string{"a", "b", "c"}), "restore")
			s.holds([]string{"a", "b", "c"}, nil, nil)
			s.waits(run("d", 0, 0), 1, "")
		},
		"what is dropped is free, and the next are named": func(s *scene) {
			s.admits(run("a", 0, 9))
			s.admits(run("b", 0, 8))
			for i, uid := range []string{"c", "d", "e"} {
				s.waits(run(uid, 0, 7-i), i+1, []string{"", "c", "d"}[i])
			}
			next, err := s.quota.Drop(s.t.Context(), acme(), s.limits, []string{"a", "b", "c", "unknown"})
			if diff := cmp.Diff(nextUp("d", "e"), next); diff != "" || err != nil {
				s.t.Errorf("next (-want +got), %v:\n%s", err, diff)
			}
			s.holds(nil, []string{"d", "e"}, nil)
		},
	}
}
