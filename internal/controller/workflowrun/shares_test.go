package workflowrun

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
func wanting(s *shares, tenant string, n int) (has []*ticket) {
	for range n {
		if t := s.take(tenant, func() {}); s.has(t) {
			has = append(has, t)
		}
	}
	return has
}

// Mutation that this finds: may is s.free > 0 (the first tenant has all 16).
func TestNoTenantHasMoreThanItsShareOfThePlaces(t *testing.T) {
	for hostile, most := range map[int]int{1: 8, 2: 6, 7: 2, 15: 1} {
		t.Run(fmt.Sprintf("%d tenants want all", hostile), func(t *testing.T) {
			s, rng := newShares(16, true, placeMetrics{}), rand.New(rand.NewPCG(1, 1))
			var all []*ticket
			ask := func(i int) { all = append(all, s.take(fmt.Sprint("hostile-", i), func() {})) }
			for k := range 100 * hostile {
				ask(k % hostile)
			}
			for range 2000 { // passes end, and others are wanted
				if i := rng.IntN(len(all)); s.has(all[i]) {
					s.give(all[i])
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

// Mutation that this finds: first takes whoever waits longest.
func TestThePlaceThatGetsFreeGoesToTheTenantWithTheFewest(t *testing.T) {
	s := newShares(4, false, placeMetrics{})
	has := wanting(s, "hostile", 100)
	if len(has) != 4 {
		t.Fatalf("%d places are had at once, where nobody waits", len(has))
	}
	woken := false
	neighbour := s.take("neighbour", func() { woken = true })
	s.give(has[0])
	if !woken || !s.has(neighbour) {
		t.Error("99 requests of a tenant that has places go before the first of another one")
	}
	s.give(neighbour)
	if s.used["hostile"] != 4 {
		t.Errorf("%d of 4 places are used while requests wait", s.used["hostile"])
	}
}

// mutation: before that compares the requests' turns first, or grant that does not note the tenant's, makes this fail.
func TestAPlaceGoesRoundAmongTenants(t *testing.T) {
	s := newShares(1, false, placeMetrics{})
	var order []string
	ask := func(tenant string, n int) (all []*ticket) {
		for range n {
			all = append(all, s.take(tenant, func() { order = append(order, tenant) }))
		}
		return all
	}
	all := append(ask("a", 4), ask("b", 2)...)
	all = append(all, ask("c", 1)...)
	for len(all) > 0 {
		i := slices.IndexFunc(all, s.has)
		s.give(all[i])
		all = slices.Delete(all, i, i+1)
	}
	if want := []string{"b", "c", "a", "b", "a", "a"}; !slices.Equal(order, want) {
		t.Errorf("places went to %v, want %v", order, want)
	}
}

// mutation: nobody is forgotten, or only at turns of a certain number: a request that is given up shifts them.
func TestSharesForgetTenantsThatAreGone(t *testing.T) {
	s := newShares(1, false, placeMetrics{})
	first := s.take("first", func() {})
	s.give(s.take("gives up", func() {}))
	s.give(first)
	for i := range 4 * lastTurns {
		s.give(s.take(fmt.Sprint(i), func() {}))
	}
	if len(s.last) > 2*lastTurns {
		t.Errorf("%d tenants are remembered", len(s.last))
	}
}

// Mutation that this finds: give of a request that waits does not take it out of its line.
func TestARequestThatIsGivenUpTakesNoPlace(t *testing.T) {
	s := newShares(1, false, placeMetrics{})
	done, err := s.wait(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if _, err := s.wait(ctx, "b"); !errors.Is(err, errTest) {
		t.Fatalf("waited: %v", err)
	}
	done()
	if s.free != 1 || len(s.lines) != 0 || len(s.used) != 0 {
		t.Errorf("free %d, lines %v, used %v", s.free, s.lines, s.used)
	}
}

// A run that waits for its turn is woken once, when it has it, and its pass is made then, whoever asks in between.
//
// Mutations that this finds: leave wakes nobody; enter asks for a place each time.
func TestARunThatHasToWaitForItsTurnIsWokenForIt(t *testing.T) {
	var woken []types.NamespacedName
	q := newTurns(2, placeMetrics{}, func(key types.NamespacedName) { woken = append(woken, key) })
	key := func(ns string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: ns, Name: fmt.Sprint(i)}
	}
	first, may := q.enter(key("a", 1))
	if !may {
		t.Fatal("the first has to wait")
	}
	for range 3 {
		if _, may := q.enter(key("a", 2)); may {
			t.Fatal("a tenant has both places")
		}
	}
	if _, may := q.enter(key("b", 1)); !may {
		t.Fatal("there is no place for another tenant")
	}
	q.leave(first)
	if len(woken) != 1 || woken[0] != key("a", 2) {
		t.Fatalf("woken: %v", woken)
	}
	if _, may := q.enter(key("a", 3)); may {
		t.Fatal("another run has the place")
	}
	if _, may := q.enter(key("a", 2)); !may {
		t.Fatal("the run that was woken has to wait again")
	}
}

// Whatever comes and goes, no more places are in use than there are, nobody waits who may have one, and all get one in the end.
func TestSharesOfPlacesHoldWhateverComesAndGoes(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		places := 1 + rng.IntN(8)
		s := newShares(places, seed%2 == 0, placeMetrics{})
		var all []*ticket
		for range 400 {
			if len(all) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(all))
				s.give(all[i])
				all = append(all[:i], all[i+1:]...)
			} else {
				all = append(all, s.take(fmt.Sprint(rng.IntN(4)), func() {}))
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
			if !s.has(all[0]) && s.free == places {
				t.Fatalf("seed %d: a request waits for ever", seed)
			}
			s.give(all[0])
			all = all[1:]
		}
		if s.free != places || len(s.lines)+len(s.used) != 0 {
			t.Fatalf("seed %d: at the end %d of %d are free, lines %v", seed, s.free, places, s.lines)
		}
	}
}

func TestPlacesAreCounted(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	s := newShares(1, false, m.places("desk"))
	has := wanting(s, "a", 3)
	for _, c := range []struct {
		what string
		of   prometheus.Collector
		want float64
	}{{"used", m.placesUsed.WithLabelValues("desk"), 1}, {"waiting", m.placesWaiting.WithLabelValues("desk"), 2}, {"waits", m.placeWaits.WithLabelValues("desk"), 2}} {
		if got := testutil.ToFloat64(c.of); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	s.give(has[0])
	if got := testutil.ToFloat64(m.placesWaiting.WithLabelValues("desk")); got != 1 {
		t.Errorf("%v wait after one has its place", got)
	}
}

// Of two cores one is left to passes that need no desk.
func TestDesksLeaveACore(t *testing.T) {
	for cores, want := range map[int]int{1: 1, 2: 1, 3: 2, 64: maxDesks} {
		if got := desksOf(cores); got != want {
			t.Errorf("%d desks on %d cores, want %d", got, cores, want)
		}
	}
}
