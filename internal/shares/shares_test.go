// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Whoever is drawn to end, the rule keeps its promises.
//
// Invariant: no more are in than the total, and no tenant has more than its max; whoever has less
// than it is guaranteed and waits is before all who have theirs; nothing stays free that somebody
// who waits may have; of those with the same use / weight the one is next that got a
// slot longest ago.
//
// mutation: compare without Since, class that is always 1, Next without the total, or without the
// max makes this fail.
func TestNextKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := Limits{Total: rapid.IntRange(0, 12).Draw(rt, "total"), Max: rapid.IntRange(-1, 8).Draw(rt, "max"), Tenants: map[string]Share{}}
		var tenants []Tenant
		for i := range rapid.IntRange(1, 5).Draw(rt, "tenants") {
			name := strconv.Itoa(i)
			tenants = append(tenants, Tenant{Name: name})
			if rapid.Bool().Draw(rt, "named") {
				l.Tenants[name] = Share{
					Max: rapid.IntRange(0, 9).Draw(rt, "max of it"), Guaranteed: rapid.IntRange(0, 4).Draw(rt, "guaranteed"),
					Weight: rapid.IntRange(0, 4).Draw(rt, "weight"),
				}
			}
		}
		used := 0
		for step := range 100 {
			i := rapid.IntRange(0, len(tenants)-1).Draw(rt, "tenant")
			switch rapid.IntRange(0, 2).Draw(rt, "does") {
			case 0:
				tenants[i].First = strconv.Itoa(rapid.IntRange(0, 3).Draw(rt, "order"))
			case 1:
				tenants[i].First = ""
			case 2:
				if tenants[i].Used > 0 {
					tenants[i].Used--
					used--
				}
			}
			next := l.Next(tenants)
			for _, other := range tenants {
				s := l.Of(other.Name)
				may := other.First != "" && other.Used < s.Max && used < l.Total
				if may && next < 0 {
					rt.Fatalf("nobody is next, and %+v may have one of %d", other, l.Total-used)
				}
				if may && other.Used < s.Guaranteed && tenants[next].Used >= l.Of(tenants[next].Name).Guaranteed {
					rt.Fatalf("%+v is before %+v, which is guaranteed %d", tenants[next], other, s.Guaranteed)
				}
				if may && other.Since < tenants[next].Since && l.equal(other, tenants[next]) {
					rt.Fatalf("%+v is before %+v, which got a slot longer ago", tenants[next], other)
				}
			}
			if next < 0 {
				continue
			}
			if n := &tenants[next]; n.First == "" || used == l.Total || n.Used >= l.Of(n.Name).Max {
				rt.Fatalf("%+v is next, of %+v with %d in use", *n, l, used)
			}
			tenants[next].Used++
			tenants[next].Since = step
			used++
		}
	})
}

// equal says that neither of two tenants is before the other by use / weight or by what
// it is guaranteed.
func (l Limits) equal(a, b Tenant) bool {
	x, y := l.Of(a.Name), l.Of(b.Name)
	return (a.Used < x.Guaranteed) == (b.Used < y.Guaranteed) && a.Used*y.Weight == b.Used*x.Weight
}

// mutation: compare without weights makes this fail.
func TestTheExampleOfTheDocumentation(t *testing.T) {
	l := Limits{Total: 10, Max: -1, Tenants: map[string]Share{"acme": {Max: 10, Guaranteed: 4, Weight: 3}}}
	tenants := []Tenant{{Name: "acme", First: "b"}, {Name: "beta", First: "a"}}
	for i := l.Next(tenants); i >= 0; i = l.Next(tenants) {
		tenants[i].Used++
		if tenants[0].Used < 4 && tenants[1].Used > 0 {
			t.Fatalf("beta is in before acme has what it is guaranteed: %+v", tenants)
		}
	}
	if tenants[0].Used != 7 || tenants[1].Used != 3 {
		t.Errorf("%+v; want 7 and 3", tenants)
	}
}

// mutation: Loans without what is guaranteed to nobody makes this fail.
func TestLoans(t *testing.T) {
	l := Limits{Total: 10, Max: -1, Tenants: map[string]Share{
		"acme": {Max: 10, Guaranteed: 4}, "beta": {Max: 10, Guaranteed: 3}, "shut": {Max: 0, Guaranteed: 9},
	}}
	for name, tt := range map[string]struct {
		used map[string]int
		want []Loan
	}{
		"nobody uses anything":                      {map[string]int{"acme": 0, "beta": 0}, nil},
		"what nobody is guaranteed is no loan":      {map[string]int{"acme": 0, "beta": 3, "gamma": 3}, nil},
		"beyond that it is, from who has most left": {map[string]int{"acme": 0, "beta": 2, "gamma": 8}, []Loan{{"acme", "gamma", 4}, {"beta", "gamma", 1}}},
		"several borrow":                            {map[string]int{"acme": 0, "beta": 6, "gamma": 4}, []Loan{{"acme", "gamma", 4}}},
		"a limit of 0 guarantees nothing":           {map[string]int{"acme": 4, "beta": 3, "shut": 0, "gamma": 3}, nil},
		"more than the total is lent by nobody":     {map[string]int{"acme": 4, "beta": 3, "gamma": 9}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, l.Loans(tt.used)); diff != "" {
				t.Errorf("loans (-want +got):\n%s", diff)
			}
		})
	}
}

// One tenant has 10,000 runs, and 99 have ten each, which come later. Their mean wait, in ends of
// runs, is as if the one had ten, too, within 10 %.
//
// mutation: compare by First alone, which is a queue of all runs by age, makes this fail.
func TestAHostileTenantIsInNobodysWay(t *testing.T) {
	wait := func(hostile int) float64 {
		l := Limits{Total: 50, Max: -1}
		left, tenants := map[string]int{}, []Tenant{}
		for i := range 100 {
			name := strconv.Itoa(100 + i)
			tenants, left[name] = append(tenants, Tenant{Name: name, First: name}), 10
		}
		left["100"] = hostile
		var in []int // tenants that have a slot, the oldest first
		sum, ends := 0, 0
		for others := 990; others > 0; {
			for next := l.Next(tenants); next >= 0; next = l.Next(tenants) {
				n := &tenants[next]
				n.Used++
				in = append(in, next)
				if left[n.Name]--; left[n.Name] == 0 {
					n.First = ""
				}
				if next > 0 {
					sum, others = sum+ends, others-1
				}
			}
			tenants[in[0]].Used--
			in = in[1:]
			ends++
		}
		return float64(sum) / 990
	}
	if with, without := wait(10_000), wait(10); with > without*1.1 {
		t.Errorf("others wait for %.0f ends on average, and for %.0f without the hostile one", with, without)
	}
}
