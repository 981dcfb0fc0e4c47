// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

func claimOf(uid string) Claim {
	return Claim{UID: uid, Name: "team/" + uid, SpecHash: "hash-of-" + uid}
}

// claims fails the test unless the key belongs to the run of that UID after another has claimed it.
func (s *scene) claims(key, uid, owner string) {
	s.t.Helper()
	got, err := s.quota.ClaimKey(s.t.Context(), "acme", key, claimOf(uid))
	if got != claimOf(owner) || err != nil {
		s.t.Fatalf("claim of %s by %s: %+v, %v; want that of %s", key, uid, got, err, owner)
	}
}

func (s *scene) yields(key, uid string) {
	s.t.Helper()
	must(s.t, s.quota.ReleaseKey(s.t.Context(), "acme", key, uid), "yield")
}

func (s *scene) beginsKeys() string {
	s.t.Helper()
	token, err := s.quota.BeginRebuildKeys(s.t.Context(), "acme")
	must(s.t, err, "begin")
	return token
}

func (s *scene) keysAreClosed(why RebuildReason) {
	s.t.Helper()
	_, claim := s.quota.ClaimKey(s.t.Context(), "acme", "closed", claimOf("closed"))
	_, list := s.quota.Claims(s.t.Context(), "acme")
	replace := s.quota.ReplaceKey(s.t.Context(), "acme", "closed", "", claimOf("closed"))
	for call, err := range map[string]error{"claim": claim, "list": list, "replace": replace, "yield": s.quota.ReleaseKey(s.t.Context(), "acme", "closed", "closed")} {
		if e, ok := errors.AsType[*RebuildingError](err); !ok || e.Why != why || e.Key.Tenant != "acme" {
			s.t.Fatalf("%s: %v; want closed: %s", call, err, why)
		}
	}
}

func TestIdempotencyKeys(t *testing.T) {
	tests := map[string]func(s *scene){
		// mutation: claim.lua with HSET makes this fail.
		"the first wins, and may repeat it": func(s *scene) {
			s.claims("report", "a", "a")
			s.claims("report", "b", "a")
			s.claims("report", "a", "a")
			s.claims("another", "b", "b")
		},
		// mutation: release_key.lua without the comparison makes this fail.
		"only the owner frees a key": func(s *scene) {
			s.claims("report", "a", "a")
			s.yields("report", "b")
			s.claims("report", "b", "a")
			s.yields("report", "a")
			s.yields("report", "a")
			s.claims("report", "b", "b")
			s.yields("report", "a")
			s.claims("report", "a", "b")
		},
		// mutation: replace_key.lua without the comparison makes this fail.
		"a key goes from its owner to another, or from nobody": func(s *scene) {
			replaces := func(from, to string) {
				s.t.Helper()
				must(s.t, s.quota.ReplaceKey(s.t.Context(), "acme", "report", from, claimOf(to)), "replace")
			}
			replaces("", "a")
			s.claims("report", "b", "a")
			replaces("", "b")
			replaces("b", "c")
			s.claims("report", "b", "a")
			replaces("a", "c")
			replaces("a", "c")
			s.claims("report", "a", "c")
		},
		"tenants have keys of their own": func(s *scene) {
			s.claims("report", "a", "a")
			token, err := s.quota.BeginRebuildKeys(s.t.Context(), "other")
			must(s.t, err, "begin")
			must(s.t, s.quota.FinishRebuildKeys(s.t.Context(), "other", token, nil), "finish")
			if owner, err := s.quota.ClaimKey(s.t.Context(), "other", "report", claimOf("b")); owner != claimOf("b") || err != nil {
				s.t.Errorf("claim: %+v, %v", owner, err)
			}
		},
		// mutation: a time that is forgotten, one that is not counted by the clock of Redis, or a
		// question that claims makes this fail.
		"a run that is about to be created has the key until its time is over, or for good when it exists": func(s *scene) {
			asked, err := s.quota.ReserveKey(s.t.Context(), "acme", "report", claimOf("b"), 0)
			if (asked != Claim{}) || err != nil {
				s.t.Fatalf("asked for: %+v, %v; want nobody", asked, err)
			}
			reserved := func(uid string, ttl time.Duration, owner string, stands bool) {
				s.t.Helper()
				want := claimOf(owner)
				want.Reserved = stands
				if got, err := s.quota.ReserveKey(s.t.Context(), "acme", "report", claimOf(uid), ttl); got != want || err != nil {
					s.t.Fatalf("reserve by %s: %+v, %v; want %+v", uid, got, err, want)
				}
			}
			reserved("a", time.Hour, "a", true)
			reserved("b", time.Hour, "a", true)
			reserved("b", 0, "a", true)
			if list, err := s.quota.Claims(s.t.Context(), "acme"); err != nil || !list["report"].Reserved {
				s.t.Fatalf("listed: %+v, %v", list, err)
			}
			s.claims("report", "a", "a")
			reserved("b", time.Hour, "a", false)
			s.yields("report", "a")
			reserved("b", time.Millisecond, "b", true)
			for over := false; !over; {
				got, err := s.quota.ReserveKey(s.t.Context(), "acme", "report", claimOf("c"), 0)
				must(s.t, err, "ask")
				over = got.UID == "b" && got.Lapsed
			}
			// mutation: release_key.lua that frees whatever was Lapsed once.
			releases := func() {
				s.t.Helper()
				must(s.t, ReleaseClaim(s.t.Context(), s.quota, "acme", "report", Claim{UID: "b", Lapsed: true}), "release")
			}
			reserved("b", time.Hour, "b", true)
			releases()
			reserved("b", time.Hour, "b", true)
			s.claims("report", "b", "b")
			releases()
			s.claims("report", "c", "b")
		},
		// mutation: field() that does not set keys apart from the epoch makes this fail.
		"a key may look like anything": func(s *scene) {
			for _, key := range []string{":epoch", ":rebuild", "=", "with space", "{brace}", "\n", "é", "'"} {
				s.claims(key, "a", "a")
				s.claims(key, "b", "a")
			}
		},
		"all keys are listed": func(s *scene) {
			s.claims("report", "a", "a")
			s.claims("with space", "b", "b")
			got, err := s.quota.Claims(s.t.Context(), "acme")
			must(s.t, err, "list")
			if diff := cmp.Diff(map[string]Claim{"report": claimOf("a"), "with space": claimOf("b")}, got); diff != "" {
				s.t.Errorf("claims (-want +got):\n%s", diff)
			}
		},
		"keys that were lost are closed until they are rebuilt": func(s *scene) {
			s.claims("report", "a", "a")
			s.flush()
			s.keysAreClosed(RebuildMissing)
			token := s.beginsKeys()
			s.keysAreClosed(RebuildUnderWay)
			must(s.t, s.quota.FinishRebuildKeys(s.t.Context(), "acme", token, map[string]Claim{"report": claimOf("a")}), "finish")
			s.claims("report", "b", "a")
		},
		// mutation: reopen() without the comparison of tokens makes this fail.
		"a rebuild that lost its data again is begun anew": func(s *scene) {
			s.flush()
			token := s.beginsKeys()
			s.flush()
			if err := s.quota.FinishRebuildKeys(s.t.Context(), "acme", token, nil); !errors.Is(err, ErrRebuildLost) {
				s.t.Errorf("finish: %v; want lost", err)
			}
			s.keysAreClosed(RebuildMissing)
		},
		// mutation: reclaim.lua that always overwrites makes this fail.
		"who finishes a rebuild later takes no key from anybody": func(s *scene) {
			s.flush()
			first, second := s.beginsKeys(), s.beginsKeys()
			must(s.t, s.quota.FinishRebuildKeys(s.t.Context(), "acme", first, nil), "finish")
			s.claims("report", "a", "a")
			must(s.t, s.quota.FinishRebuildKeys(s.t.Context(), "acme", second, map[string]Claim{"report": claimOf("b"), "more": claimOf("b")}), "finish again")
			s.claims("report", "c", "a")
			s.claims("more", "c", "b")
		},
		// mutation: reclaim.lua that never overwrites makes this fail.
		"the objects are right where data is old, and what they do not say is kept": func(s *scene) {
			s.claims("report", "a", "a")
			s.claims("kept", "a", "a")
			must(s.t, s.client.HSet(s.t.Context(), s.quota.claimKeys("acme")[0], ":epoch", "1 another").Err(), "change the epoch")
			s.keysAreClosed(RebuildServer)
			must(s.t, s.quota.FinishRebuildKeys(s.t.Context(), "acme", s.beginsKeys(), map[string]Claim{"report": claimOf("b")}), "finish")
			s.claims("report", "c", "b")
			s.claims("kept", "c", "a")
		},
		"keys have no end": func(s *scene) {
			s.claims("report", "a", "a")
			if left := s.client.PTTL(s.t.Context(), s.quota.claimKeys("acme")[0]).Val(); left > 0 {
				s.t.Errorf("the keys end in %s", left)
			}
			s.yields("report", "a")
			if left := s.client.PTTL(s.t.Context(), s.quota.claimKeys("acme")[0]).Val(); left <= 0 {
				s.t.Error("a hash without keys has no end")
			}
		},
		"one of many at once wins": func(s *scene) {
			const runs = 10
			owners := make([]Claim, runs)
			var all sync.WaitGroup
			for i := range runs {
				all.Go(func() {
					var err error
					if owners[i], err = s.quota.ClaimKey(s.t.Context(), "acme", "report", claimOf(strconv.Itoa(i))); err != nil {
						s.t.Errorf("claim: %v", err)
					}
				})
			}
			all.Wait()
			for _, owner := range owners {
				if owner != owners[0] || owner.UID == "" {
					s.t.Errorf("owners are %v", owners)
					break
				}
			}
		},
	}
	onEach(t, func(t *testing.T, client *redis.Client) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s := newScene(t, client, nil, 0)
				must(t, s.quota.FinishRebuildKeys(t.Context(), "acme", s.beginsKeys(), nil), "rebuild")
				test(s)
			})
		}
	})
}
