// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

const homeName = "{adm-installation}:home"

func at(namespace string) func(*Options) { return func(o *Options) { o.Home = namespace } }

// home is what Redis names.
func (s *shared) home() string {
	s.t.Helper()
	text, err := s.client.Get(s.t.Context(), homeName).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return text
}

// refusesNeighbour fails the test unless a store is told that Redis is that of another namespace's
// operator, and does nothing.
func (s *shared) refusesNeighbour(g *Store, theirs, ours string) {
	s.t.Helper()
	before := s.dump()
	for call, err := range calls(s.t.Context(), g) {
		f, ok := errors.AsType[*ForeignError](err)
		if !ok || *f != (ForeignError{Neighbour: true, Theirs: theirs, Ours: ours}) || !is[*UnavailableError](err) {
			s.t.Errorf("%s: %v; want that Redis is that of the operator in %s", call, err, theirs)
			continue
		}
		if text := f.Error(); !strings.Contains(text, "namespace "+theirs) || !strings.Contains(text, "--nats-take-over="+theirs) {
			s.t.Errorf("%s: says %q", call, text)
		}
	}
	if after := s.dump(); !slices.Equal(before, after) {
		s.t.Errorf("keys were changed:\n%q\n%q", before, after)
	}
}

// mutation: installation.lua that sets its second key whatever that says makes this fail.
func TestRedisOfAnOperatorInAnotherNamespaceIsLeftAlone(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		must(t, Own(t.Context(), s.of("a", at("flow"))), "one that Redis does not name yet")
		s.refusesNeighbour(s.of("a", at("staging")), "flow", "staging")
		s.refusesNeighbour(s.of("a", at("staging"), func(o *Options) { o.TakeOver = "a" }), "flow", "staging")
		must(t, Own(t.Context(), s.of("a", at("flow"))), "another replica")
		must(t, Own(t.Context(), s.a), "an older version, beside it or gone back to")
		if got := s.home(); got != "a flow" {
			t.Errorf("Redis names %q", got)
		}
	})
}

// mutation: installation.lua without its last argument makes this fail, and so does find that does
// not look again for a namespace that is gone.
func TestRedisOfAnotherNamespaceIsTakenOver(t *testing.T) {
	for name, adjust := range map[string]func(*Options){
		"by the flag":           func(o *Options) { o.TakeOver = "flow" },
		"the namespace is gone": func(o *Options) { o.HomeGone = func(_ context.Context, ns string) bool { return ns == "flow" } },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t, testClient(t, redistest.Start(t).Addr()))
			old := s.of("a", at("flow"))
			must(t, Own(t.Context(), old), "the one before")
			next := s.of("a", at("syncopate-system"), adjust)
			s.quota = next
			s.admits(run("mine", 0, 0))
			s.clock.Step(lookEvery)
			s.refusesNeighbour(old, "syncopate-system", "flow")
			s.clock.Step(lookEvery)
			s.admits(run("mine", 0, 0)) // the flag may stay
			if got := s.home(); got != "a syncopate-system" {
				t.Errorf("Redis names %q", got)
			}
		})
	}
}

// mutation: installation.lua that takes the namespace of another installation for one makes this
// fail.
func TestTheNamespaceOfAnotherInstallationIsNone(t *testing.T) {
	s := newShared(t, testClient(t, redistest.Start(t).Addr()))
	must(t, Own(t.Context(), s.of("a", at("flow"))), "a")
	must(t, Own(t.Context(), s.of("b", at("syncopate-system"), func(o *Options) { o.TakeOver = "a" })), "b takes over")
	if got := s.home(); got != "b syncopate-system" {
		t.Errorf("Redis names %q", got)
	}
	must(t, s.client.Set(t.Context(), "{adm-installation}", "c", 0).Err(), "an older operator of c takes over")
	must(t, Own(t.Context(), s.of("c", at("flow"))), "a newer one of c")
	if got := s.home(); got != "c flow" {
		t.Errorf("Redis names %q", got)
	}
}

// Redis lost its data: the operator that was refused leaves it to the other for a minute.
//
// mutation: Own that lets a neighbour claim at once makes this fail.
func TestALostRedisIsLeftToTheOperatorOfBefore(t *testing.T) {
	s := newShared(t, testClient(t, redistest.Start(t).Addr()))
	old, staging := s.of("a", at("flow")), s.of("a", at("staging"))
	must(t, Own(t.Context(), old), "the one before")
	s.refusesNeighbour(staging, "flow", "staging")
	s.flush()
	s.refusesNeighbour(staging, "flow", "staging")
	must(t, Own(t.Context(), old), "it looks")
	s.refusesNeighbour(staging, "flow", "staging")
	s.flush()
	s.refusesNeighbour(staging, "flow", "staging")
	s.clock.Step(claimAfter + time.Second)
	must(t, Own(t.Context(), staging), "a minute later")
}
