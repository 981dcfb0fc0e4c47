// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

const nameName = "{adm-installation}:name"

// naming gives a name, and lets one name only be used.
type naming struct {
	gives, uses string
	told        []string
	use         int64
}

func (n *naming) Name() string { return n.gives }

var errAnotherOne = errors.New("the others use another one")

func (n *naming) Named(name string) (use int64, err error) {
	n.told = append(n.told, name)
	if name != n.uses {
		return 0, errAnotherOne
	}
	return n.use, nil
}

func withNaming(n *naming) func(*Options) { return func(o *Options) { o.Naming = n } }

// mutations: own without named, installation.lua that names what has a name, or that names nothing,
// make this fail.
func TestARedisThatIsNotTheOneOfTheOthersIsLeftAlone(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		waits := &naming{uses: "theirs"}
		if err := Own(t.Context(), s.of("a", withNaming(waits))); !errors.Is(err, errAnotherOne) || !slices.Equal(waits.told, []string{""}) {
			t.Errorf("one without a name: %v, told %q", err, waits.told)
		}
		first := s.of("a", withNaming(&naming{gives: "ours", uses: "ours"}))
		must(t, Own(t.Context(), first), "who names it")
		other := &naming{gives: "other", uses: "theirs"}
		g := s.of("a", withNaming(other))
		before := s.dump()
		for call, err := range calls(t.Context(), g) {
			if !errors.Is(err, errAnotherOne) || !is[*UnavailableError](err) {
				t.Errorf("%s: %v", call, err)
			}
		}
		if after := s.dump(); !slices.Equal(before, after) {
			t.Errorf("keys were changed:\n%q\n%q", before, after)
		}
		if got := client.Get(t.Context(), nameName).Val(); got != "ours" || !slices.Contains(other.told, "ours") {
			t.Errorf("it is called %q, told %q", got, other.told)
		}
		if _, err := Revision(t.Context(), g); err != nil {
			t.Errorf("how far history went: %v", err)
		}
		other.uses = "ours" // the others have changed to it
		must(t, Own(t.Context(), g), "the one of all")
	})
}

// Whoever is refused must not name a Redis of somebody else.
// mutation: installation.lua that names it first makes this fail.
func TestARedisOfOthersGetsNoName(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := newShared(t, client)
		must(t, Own(t.Context(), s.of("a", at("flow"))), "the one whose it is")
		n := &naming{gives: "ours", uses: "ours"}
		for _, g := range []*Store{s.of("b", withNaming(n)), s.of("a", at("staging"), withNaming(n))} {
			if err := Own(t.Context(), g); !is[*ForeignError](err) {
				t.Errorf("it is used: %v", err)
			}
		}
		if got, err := client.Exists(t.Context(), nameName).Result(); got != 0 || err != nil || len(n.told) != 0 {
			t.Errorf("it has a name (%v), told %q", err, n.told)
		}
	})
}

// A Redis that is full takes what frees room still: the look at whose it is must not be refused.
// mutations: installation.lua that sets one of its three keys at each look make this fail.
func TestAFullRedisIsLookedAtAllTheSame(t *testing.T) {
	client := testClient(t, redistest.Start(t).Addr())
	s := newShared(t, client)
	n := &naming{gives: "ours", uses: "ours"}
	must(t, Own(t.Context(), s.of("a", at("flow"), withNaming(n))), "who names it")
	must(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err(), "make it full")
	must(t, Own(t.Context(), s.of("a", withNaming(n))), "the look at a full one")
	for _, own := range []string{"a", "flow"} { // nothing has it taken away again once it was done
		over := func(o *Options) { o.TakeOver = own }
		must(t, Own(t.Context(), s.of("a", at("flow"), withNaming(n), over)), "the look of one with --nats-take-over of its own name")
	}
}

// A Redis that was full before it had a name, as at the first start of a version with names. Who
// leads alone needs none, and goes on, until it can be written. Where replicas share runs it is
// refused: nobody could tell it from another one.
// mutations: installation.lua that gives up where the name is refused, or that answers a name which
// it could not write, make this fail.
func TestAFullRedisWithoutANameIsUsedByWhoNeedsNone(t *testing.T) {
	client := testClient(t, redistest.Start(t).Addr())
	s := newShared(t, client)
	must(t, Own(t.Context(), s.of("a", at("flow"))), "a version without names")
	must(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err(), "make it full")
	for _, place := range []func(*Options){at(""), at("flow")} {
		n := &naming{gives: "ours"}
		must(t, Own(t.Context(), s.of("a", place, withNaming(n), func(o *Options) { o.Nameless = true })), "who leads")
		if !slices.Equal(n.told, []string{""}) {
			t.Errorf("it was told %q", n.told)
		}
		shares := &naming{gives: "ours"}
		if err := Own(t.Context(), s.of("a", place, withNaming(shares))); err == nil || !strings.Contains(err.Error(), "OOM") || len(shares.told) != 0 {
			t.Errorf("who shares runs: %v, told %q", err, shares.told)
		}
	}
	must(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err(), "give it room")
	n := &naming{gives: "ours", uses: "ours"}
	must(t, Own(t.Context(), s.of("a", at("flow"), withNaming(n), func(o *Options) { o.Nameless = true })), "once there is room")
	if got := client.Get(t.Context(), nameName).Val(); got != "ours" {
		t.Errorf("it is called %q", got)
	}
}
