// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

// wanting has a tenant ask for n places, and gives those that it has at once.
func wanting(s *Shares, tenant string, n int) (has []*Ticket) {
	for range n {
		if t := s.Take(tenant, func() {}); s.Has(t) {
			has = append(has, t)
		}
	}
	return has
}

// Mutation that this finds: may is s.free > 0 (the first tenant has all 16).
func TestNoTenantHasMoreThanItsShareOfThePlaces(t *testing.T) {
	for hostile, most := range map[int]int{1: 8, 2: 6, 7: 2, 15: 1} {
		t.Run(fmt.Sprintf("%d tenants want all", hostile), func(t *testing.T) {
			s, rng := New(16, true, KindMetrics{}), rand.New(rand.NewPCG(1, 1))
			var all []*Ticket
			ask := func(i int) { all = append(all, s.Take(fmt.Sprint("hostile-", i), func() {})) }
			for k := range 100 * hostile {
				ask(k % hostile)
			}
			for range 2000 { // passes end, and others are wanted
				if i := rng.IntN(len(all)); s.Has(all[i]) {
					s.Give(all[i])
					all = slices.Delete(all, i, i+1)
					ask(rng.IntN(hostile))
				}
			}
			for tenant, n := range s.used {
				if n > most {
					t.Errorf("%s has %d places, more than %d", tenant, n, most)
				}
			}
			if len(wanting(s, "neighbour", 1)) != 1 {
				t.Errorf("there is no place left for another tenant: %v", s.used)
			}
		})
	}
}

// Mutation that this finds: Crowded that asks only whether all places are used.
func TestATenantWithoutAPlaceIsNotCrowdedByOthers(t *testing.T) {
	s := New(2, false, KindMetrics{})
	one := s.Take("busy", func() {})
	if s.Crowded("busy") {
		t.Error("there is a place")
	}
	s.Take("busy", func() {})
	if !s.Crowded("busy") || s.Crowded("neighbour") {
		t.Errorf("busy %t, neighbour %t", s.Crowded("busy"), s.Crowded("neighbour"))
	}
	s.Give(one)
	if s.Crowded("busy") {
		t.Error("there is a place again")
	}
}

// Mutation that this finds: may without kept (the neighbour waits), or New that keeps none back
// from who has all the others (it has five).
func TestATenantWithoutAPlaceHasOneMore(t *testing.T) {
	s := NewWithOneMore(4, KindMetrics{})
	has := wanting(s, "hostile", 100)
	if len(has) != 4 || !s.Crowded("hostile") {
		t.Fatalf("%d places are had by one tenant", len(has))
	}
	if len(wanting(s, "neighbour", 2)) != 1 {
		t.Fatal("there is no place for another tenant, or there are two")
	}
	third := s.Take("third", func() {})
	s.Give(has[0])
	if !s.Has(third) || s.used["hostile"] != 3 {
		t.Errorf("the place that is free went to another: %v", s.used)
	}
	s.Give(third)
	if s.used["hostile"] != 3 {
		t.Errorf("none is left for the next: %v", s.used)
	}
}

// Mutation that this finds: first takes whoever waits longest.
func TestThePlaceThatGetsFreeGoesToTheTenantWithTheFewest(t *testing.T) {
	s := New(4, false, KindMetrics{})
	has := wanting(s, "hostile", 100)
	if len(has) != 4 {
		t.Fatalf("%d places are had at once, where nobody waits", len(has))
	}
	woken := false
	neighbour := s.Take("neighbour", func() { woken = true })
	s.Give(has[0])
	if !woken || !s.Has(neighbour) {
		t.Error("99 requests of a tenant that has places go before the first of another one")
	}
	s.Give(neighbour)
	if s.used["hostile"] != 4 {
		t.Errorf("%d of 4 places are used while requests wait", s.used["hostile"])
	}
}

// mutation: before that compares the requests' turns first, or grant that does not note the
// tenant's, makes this fail.
func TestAPlaceGoesRoundAmongTenants(t *testing.T) {
	s := New(1, false, KindMetrics{})
	var order []string
	ask := func(tenant string, n int) (all []*Ticket) {
		for range n {
			all = append(all, s.Take(tenant, func() { order = append(order, tenant) }))
		}
		return all
	}
	all := append(ask("a", 4), ask("b", 2)...)
	all = append(all, ask("c", 1)...)
	for len(all) > 0 {
		i := slices.IndexFunc(all, s.Has)
		s.Give(all[i])
		all = slices.Delete(all, i, i+1)
	}
	if want := []string{"b", "c", "a", "b", "a", "a"}; !slices.Equal(order, want) {
		t.Errorf("places went to %v, want %v", order, want)
	}
}

// mutation: nobody is forgotten, or only at turns of a certain number: a request that is given
// up shifts them.
func TestSharesForgetTenantsThatAreGone(t *testing.T) {
	s := New(1, false, KindMetrics{})
	first := s.Take("first", func() {})
	s.Give(s.Take("gives up", func() {}))
	s.Give(first)
	for i := range 4 * lastTurns {
		s.Give(s.Take(fmt.Sprint(i), func() {}))
	}
	if len(s.last) > 2*lastTurns {
		t.Errorf("%d tenants are remembered", len(s.last))
	}
}

// Mutation that this finds: give of a request that waits does not take it out of its line.
func TestARequestThatIsGivenUpTakesNoPlace(t *testing.T) {
	s := New(1, false, KindMetrics{})
	done, err := s.Wait(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if _, err := s.Wait(ctx, "b"); !errors.Is(err, errTest) {
		t.Fatalf("waited: %v", err)
	}
	done()
	if s.free != 1 || len(s.lines) != 0 || len(s.used) != 0 {
		t.Errorf("free %d, lines %v, used %v", s.free, s.lines, s.used)
	}
}

// A run that waits for its turn is woken once, when it has it, and its pass is made then, whoever
// asks in between.
//
// Mutations that this finds: leave wakes nobody; enter asks for a place each time.
func TestARunThatHasToWaitForItsTurnIsWokenForIt(t *testing.T) {
	var woken []types.NamespacedName
	q := NewTurns(2, KindMetrics{}, func(key types.NamespacedName) { woken = append(woken, key) })
	key := func(ns string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: ns, Name: fmt.Sprint(i)}
	}
	first, may := q.Enter(key("a", 1))
	if !may {
		t.Fatal("the first has to wait")
	}
	for range 3 {
		if _, may := q.Enter(key("a", 2)); may {
			t.Fatal("a tenant has both places")
		}
	}
	if _, may := q.Enter(key("b", 1)); !may {
		t.Fatal("there is no place for another tenant")
	}
	q.Release(first)
	if len(woken) != 1 || woken[0] != key("a", 2) {
		t.Fatalf("woken: %v", woken)
	}
	if _, may := q.Enter(key("a", 3)); may {
		t.Fatal("another run has the place")
	}
	if _, may := q.Enter(key("a", 2)); !may {
		t.Fatal("the run that was woken has to wait again")
	}
}

// Whatever comes and goes, no more places are in use than there are, nobody waits who may have one,
// and all get one in the end.
func TestSharesOfPlacesHoldWhateverComesAndGoes(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		places := 1 + rng.IntN(8)
		s := New(places, seed%2 == 0, KindMetrics{})
		if seed%3 == 0 {
			s = NewWithOneMore(places, KindMetrics{})
			places++
		}
		var all []*Ticket
		for range 400 {
			if len(all) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(all))
				s.Give(all[i])
				all = append(all[:i], all[i+1:]...)
			} else {
				all = append(all, s.Take(fmt.Sprint(rng.IntN(4)), func() {}))
			}
			sum := 0
			for _, n := range s.used {
				sum += n
			}
			if sum+s.free != places || s.free < 0 {
				t.Fatalf("seed %d: %d in use, %d free of %d", seed, sum, s.free, places)
			}
			if next := s.first(); next != nil {
				t.Fatalf("seed %d: tenant %s waits for a place that is free", seed, next.tenant)
			}
		}
		for len(all) > 0 {
			if !s.Has(all[0]) && s.free == places {
				t.Fatalf("seed %d: a request waits for ever", seed)
			}
			s.Give(all[0])
			all = all[1:]
		}
		if s.free != places || len(s.lines)+len(s.used) != 0 {
			t.Fatalf("seed %d: at the end %d of %d are free, lines %v", seed, s.free, places, s.lines)
		}
	}
}

func TestPlacesAreCounted(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	s := New(1, false, m.Of("desk"))
	has := wanting(s, "a", 3)
	for _, c := range []struct {
		what string
		of   prometheus.Collector
		want float64
	}{{"used", m.used.WithLabelValues("desk"), 1}, {"waiting", m.waiting.WithLabelValues("desk"), 2}, {"waits", m.waits.WithLabelValues("desk"), 2}} {
		if got := testutil.ToFloat64(c.of); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	s.Give(has[0])
	if got := testutil.ToFloat64(m.waiting.WithLabelValues("desk")); got != 1 {
		t.Errorf("%v wait after one has its place", got)
	}
}

// Mutations that this finds: Again with a number of its own, or that has it wait where there is a
// place.
func TestWhoAsksAgainGoesBeforeThoseThatCameLater(t *testing.T) {
	s := New(1, true, KindMetrics{})
	first := s.Take("a", func() {})
	second, third := s.Take("a", func() {}), s.Take("a", func() {})
	s.Give(first)
	again := s.Again(first, func() {})
	if s.Has(again) || !s.Has(second) {
		t.Fatalf("again %t, the second %t", s.Has(again), s.Has(second))
	}
	s.Give(second)
	if !s.Has(again) || s.Has(third) {
		t.Errorf("again %t, the third %t", s.Has(again), s.Has(third))
	}
	s.Give(again)
	s.Give(third)
	if !s.Has(s.Again(third, func() {})) {
		t.Error("it waits, and a place is free")
	}
}
