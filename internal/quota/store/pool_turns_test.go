// SPDX-License-Identifier: Apache-2.0

package store

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/shares"
	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// turns is a pool whose runs end one at a time. The UID of a run is '<tenant>.<number>'.
type turns struct {
	*poolScene
	in   []string // have slots, the oldest first
	runs int
}

func newTurns(t *testing.T, client *redis.Client, total int) *turns {
	t.Helper()
	must(t, client.FlushAll(t.Context()).Err(), "flush")
	return &turns{poolScene: newPoolScene(t, client, shares.Limits{Total: total, Max: -1})}
}

// asks has runs of a tenant ask for slots.
func (s *turns) asks(tenant string, runs int, priority int32, age int) {
	s.t.Helper()
	for range runs {
		s.runs++
		s.asksAgain(tenant, run(tenant+"."+strconv.Itoa(s.runs), priority, age))
	}
}

func (s *turns) asksAgain(tenant string, r Run) {
	s.t.Helper()
	a, err := s.quota.Admit(s.t.Context(), s.key, s.limits, tenant, r)
	must(s.t, err, "admit %s", r.UID)
	if a.Admitted {
		s.in = append(s.in, r.UID)
	}
	for _, g := range a.Given {
		s.in = append(s.in, g.UID)
	}
}

// ends has the oldest run end. It returns the tenants that got slots.
func (s *turns) ends() (given []string) {
	s.t.Helper()
	all, err := s.quota.Release(s.t.Context(), s.key, s.limits, s.in[0])
	must(s.t, err, "release %s", s.in[0])
	s.in = s.in[1:]
	for _, g := range all {
		tenant, _, _ := strings.Cut(g.UID, ".")
		s.in, given = append(s.in, g.UID), append(given, tenant)
	}
	return given
}

// given fails the test unless the next slots go to these tenants.
func (s *turns) given(want ...string) {
	s.t.Helper()
	var got []string
	for range want {
		got = append(got, s.ends()...)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("slots went to %v; want %v", got, want)
	}
}

// Tenants with the same use / weight take turns, whatever the age and the priority of their runs.
//
// mutation: rank without the stamp, or take that does not ask for a new one, makes this fail.
func TestTenantsOfAPoolTakeTurns(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newTurns(t, client, 1)
		s.asks("a", 10, 0, 5)
		s.asks("b", 1, 0, 0)
		s.given("b", "a", "a")

		s = newTurns(t, client, 2)
		for i, tenant := range []string{"a", "b", "c"} {
			s.asks(tenant, 9, int32(2-i), 0)
		}
		for range 5 {
			round := slices.Concat(s.ends(), s.ends(), s.ends())
			slices.Sort(round)
			if !slices.Equal(round, []string{"a", "b", "c"}) {
				t.Errorf("three slots went to %v; want one for each", round)
			}
		}
	})
}

// Tenants that come anew, as namespaces of pull requests do, are not all before one that waits.
//
// mutation: a stamp of 0 for who begins to wait makes this fail.
func TestNewTenantsDoNotKeepATurnFromWhoWaits(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newTurns(t, client, 1)
		s.asks("nightly", 5, 0, 0)
		var got []string
		for i := range 4 {
			s.asks("new"+strconv.Itoa(2*i), 1, 1, 9)
			s.asks("new"+strconv.Itoa(2*i+1), 1, 1, 9)
			got = append(got, s.ends()...)
		}
		if !slices.Contains(got, "nightly") {
			t.Errorf("slots went to %v; want one for nightly", got)
		}
	})
}

// A tenant keeps its turn when the only run of it that waits gets another priority.
//
// mutation: pool_admit.lua that leaves the queue before it stands in it again makes this fail.
func TestATurnIsKeptWhenAPriorityChanges(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newTurns(t, client, 1)
		s.asks("a", 1, 0, 0)
		s.asks("b", 1, 0, 9)
		s.asks("c", 1, 0, 0)
		s.given("b")
		s.asks("d", 1, 0, 0)
		s.asksAgain("c", run("c.3", -1, 0))
		s.given("c", "d")
	})
}

// During a rolling update an older replica puts tenants in their turns, too: without a stamp.
//
// mutation: a stamp that has a space in it, or that is before a digit, makes this fail.
func TestTurnsOfAnOlderReplica(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newTurns(t, client, 1)
		s.asks("a", 5, 0, 5)
		s.asks("b", 5, 0, 0)
		s.asks("c", 5, 0, 0)
		s.given("b") // now it is the turn of c
		keys := s.quota.poolKeys(s.key)
		places, turn := keys[2], keys[6]
		stands := client.ZRange(t.Context(), turn, 0, -1).Val()
		of := regexp.MustCompile(`^\S+ \S+ (\S+) (\S+) (\S+)$`) // as an older replica reads it
		for _, m := range stands {
			if got := of.FindStringSubmatch(m); len(got) == 0 || !strings.HasPrefix(got[2], got[3]+".") || got[1] != "team/"+got[2] {
				t.Errorf("an older replica reads %q of %q", got, m)
			}
			if tenant := m[strings.LastIndex(m, " ")+1:]; tenant == "a" {
				_, old, _ := strings.Cut(m, ".")
				must(t, client.ZRem(t.Context(), turn, m).Err(), "its turn goes")
				must(t, client.ZAdd(t.Context(), turn, redis.Z{Member: old}).Err(), "as an older replica puts it")
				must(t, client.HSet(t.Context(), places, "ta", old).Err(), "as an older replica remembers it")
			}
		}
		s.given("a", "c", "b", "a", "c", "b")
	})
}
