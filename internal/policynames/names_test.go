// SPDX-License-Identifier: Apache-2.0

package policynames

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var start = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func counter(n *Names) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x_total", Help: "A test."}, []string{"policy", "path"})
	n.Drop(v)
	return v
}

func none(string) bool { return false }

func only(name string) func(string) bool { return func(other string) bool { return other == name } }

// mutation: names without a bound, or one that the defaults have a place in, make this fail.
func TestNamesBeyondTheBoundAreOther(t *testing.T) {
	n := New()
	if got := n.Label(""); got != "" {
		t.Errorf("the defaults are %q", got)
	}
	for i := range most {
		name := fmt.Sprint("p-", i)
		if got := n.Label(name); got != name {
			t.Errorf("%s is %q", name, got)
		}
	}
	if got := n.Label("one-more"); got != Other {
		t.Errorf("one more is %q", got)
	}
	if !n.Shared("one-more") || n.Shared("p-7") || New().Shared("p-7") {
		t.Error("it is not said who has a label")
	}
	if got := n.Label("p-7"); got != "p-7" {
		t.Errorf("one that has a place is %q", got)
	}
	if got := (*Names)(nil).Label("p"); got != "p" {
		t.Errorf("without a bound p is %q", got)
	}
}

// mutation: series that are dropped at once, of policies that are there, or never; a name that
// keeps its place for longer than its series, or gives it up while somebody counts, make this fail.
func TestSeriesOfDeletedPoliciesAreDropped(t *testing.T) {
	n := New()
	first, second := counter(n), counter(n)
	count := func() {
		for _, name := range []string{"gone", "stays", ""} {
			first.WithLabelValues(n.Label(name), "a").Inc()
			second.WithLabelValues(n.Label(name), "b").Inc()
		}
	}
	series := func() int { return testutil.CollectAndCount(first) + testutil.CollectAndCount(second) }
	count()
	for i, look := range []struct {
		after  time.Duration
		there  func(string) bool
		count  bool
		later  bool
		series int
		names  int
	}{
		{0, func(string) bool { return true }, false, false, 6, 2},
		{time.Hour, only("stays"), false, true, 6, 2},
		{time.Hour + keptFor - 1, only("stays"), false, true, 6, 2},
		{time.Hour + keptFor, only("stays"), false, false, 4, 1},     // dropped, and the place is free
		{time.Hour + 2*keptFor, only("stays"), true, true, 6, 2},     // counted once more
		{time.Hour + 3*keptFor - 1, only("stays"), true, true, 6, 2}, // and again: the time begins anew
		{time.Hour + 4*keptFor - 2, only("stays"), false, true, 6, 2},
		{time.Hour + 4*keptFor - 1, only("stays"), false, false, 4, 1},                     // nobody counted
		{3 * time.Hour, only("gone"), true, true, 6, 2},                                    // made again
		{3*time.Hour + keptFor - 1, func(string) bool { return true }, false, false, 6, 2}, // the other is back in time
		{4 * time.Hour, func(string) bool { return true }, false, false, 6, 2},
	} {
		if look.count {
			count()
		}
		if later := n.Keep(look.there, start.Add(look.after)); later != look.later {
			t.Errorf("look %d: later %t", i, later)
		}
		if got := series(); got != look.series || len(n.gone) != look.names {
			t.Errorf("look %d: %d series of %d names; want %d of %d", i, got, len(n.gone), look.series, look.names)
		}
	}
}

// What is of all others is not dropped with a policy whose name is that word.
//
// mutation: drop that does not look for it makes this fail.
func TestAPolicyWhoseNameIsOther(t *testing.T) {
	n := New()
	v := counter(n)
	v.WithLabelValues(n.Label(Other), "a").Inc()
	n.Keep(none, start)
	if later := n.Keep(none, start.Add(keptFor)); later || testutil.CollectAndCount(v) != 1 {
		t.Errorf("%d series, later %t", testutil.CollectAndCount(v), later)
	}
}
