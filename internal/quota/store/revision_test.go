// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"math"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// saw fails the test unless that is how far history went, as a store says.
func saw(t *testing.T, g *Store, want uint64) {
	t.Helper()
	if got, err := Revision(t.Context(), g); got != want || err != nil {
		t.Errorf("history went to %d, %v; want %d", got, err, want)
	}
}

// mutation: history.lua that sets whatever it is told makes this fail, and so does one that
// compares by bytes only, or as numbers of Lua.
func TestTheMarkOfHistoryIsNeverLowered(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		saw(t, s.a, 0)
		mark := uint64(0)
		for _, revision := range []uint64{7, 9, 10, 9, 1, 100, 99, 0, 1<<53 + 1, 1 << 53, 1<<53 + 2, math.MaxUint64, 5} {
			must(t, RaiseRevision(t.Context(), s.a, revision), "tell %d", revision)
			mark = max(mark, revision)
			saw(t, s.a, mark)
		}
		saw(t, s.of("a"), mark) // another replica
	})
}

// A new cluster has lower revisions than the one whose place it takes.
//
// mutation: history.lua that does not compare KEYS[1] makes this fail, and so does one that writes
// no name.
func TestTheMarkOfHistoryIsTheInstallationsThatRedisNames(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		must(t, RaiseRevision(t.Context(), s.a, 100), "tell")
		b := s.of("b")
		if _, err := Revision(t.Context(), b); !is[*ForeignError](err) {
			t.Errorf("another installation is told %v", err)
		}
		if err := RaiseRevision(t.Context(), b, 900); !is[*ForeignError](err) {
			t.Errorf("another installation tells: %v", err)
		}
		saw(t, s.a, 100)

		heir := s.of("b", func(o *Options) { o.TakeOver = "a" })
		must(t, Own(t.Context(), heir), "take over")
		must(t, RaiseRevision(t.Context(), s.a, 900), "a has not looked since")
		saw(t, s.a, 100)
		saw(t, heir, 0)
		must(t, RaiseRevision(t.Context(), heir, 5), "tell")
		saw(t, heir, 5)

		must(t, client.Del(t.Context(), "{adm-installation}").Err(), "hand Redis on")
		next := s.of("c")
		must(t, Own(t.Context(), next), "the next one has it")
		saw(t, next, 0)
	})
}

// Versions from before the mark take Redis over, and leave it.
//
// mutation: marks that name nobody make this fail, and so does history.lua that leaves what is
// another's.
func TestTheMarkOfAnotherInstallationIsNone(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		must(t, RaiseRevision(t.Context(), s.a, 100), "tell")
		must(t, client.Set(t.Context(), "{adm-installation}", "b", 0).Err(), "an older operator of b takes over")
		b := s.of("b")
		saw(t, b, 0)
		for _, text := range []string{"a 100", "900", "b", "b ", "b x", "b -5", "b 5 6", "b 0x9", "some text", "bb 700", "", "b 123456789012345678901"} {
			must(t, client.Set(t.Context(), "{adm-installation}:revision", text, 0).Err(), "write %q", text)
			saw(t, b, 0)
			must(t, RaiseRevision(t.Context(), b, 5), "tell")
			saw(t, b, 5)
		}
	})
}

// The flag may stay, also where it names the installation itself.
//
// mutation: installation.lua that takes the mark away makes this fail.
func TestWhoTakesOverFromItselfKeepsTheMarkOfHistory(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		must(t, RaiseRevision(t.Context(), s.a, 100), "tell")
		again := s.of("a", func(o *Options) { o.TakeOver = "a" })
		must(t, Own(t.Context(), again), "look")
		saw(t, again, 100)
	})
}

func TestTheMarkOfHistorySurvivesWhatRedisSurvives(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--dir", t.TempDir())
	s := newShared(t, testClient(t, server.Addr()))
	must(t, RaiseRevision(t.Context(), s.a, 42), "tell")
	server.Restart()
	saw(t, s.of("a"), 42)
	s.flush()
	must(t, Own(t.Context(), s.a), "look")
	saw(t, s.a, 0)
}

func TestARedisThatIsAwayHasNoMarkOfHistory(t *testing.T) {
	server := miniredis.RunT(t)
	s := newShared(t, testClient(t, server.Addr()))
	server.SetError("LOADING Redis is loading the dataset in memory")
	for what, call := range map[string]func(context.Context) error{
		"ask":  func(ctx context.Context) error { _, err := Revision(ctx, s.a); return err },
		"tell": func(ctx context.Context) error { return RaiseRevision(ctx, s.a, 5) },
	} {
		if err := call(t.Context()); err == nil || is[*ForeignError](err) {
			t.Errorf("%s of a Redis that is away: %v", what, err)
		}
	}
}

func TestWithoutAnInstallationHistoryIsNotKept(t *testing.T) {
	client := testClient(t, miniredis.RunT(t).Addr())
	g := testQuota(client, Options{})
	must(t, RaiseRevision(t.Context(), g, 5), "tell")
	saw(t, g, 0)
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("Redis has %d keys", n)
	}
}
