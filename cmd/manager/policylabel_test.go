// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/syncopate-dev/syncopate/internal/controller/lockpolicy"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policynames"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// collectors notes what is registered.
type collectors struct{ list []prometheus.Collector }

func (c *collectors) Register(one prometheus.Collector) error {
	c.list = append(c.list, one)
	return nil
}

func (c *collectors) MustRegister(many ...prometheus.Collector) { c.list = append(c.list, many...) }

func (c *collectors) Unregister(prometheus.Collector) bool { return false }

// vectors are the metrics with the label policy, by name, as the operator makes them.
func vectors(t *testing.T, names *policynames.Names) map[string]prometheus.Collector {
	t.Helper()
	all := &collectors{}
	locks, runs, box := lockmgr.NewMetrics(all, names), workflowrun.NewMetrics(all, names), ballot.NewBox(all, names)
	store.NewMetrics(all, 0)
	(&lockpolicy.Reconciler{}).RegisterMetrics(all)
	for _, name := range []string{"first", "one-more"} {
		locks.Taken("admission", name, 0)
		locks.BusyRetry("admission", "lock_busy", name, false, 0)
		locks.Leaseless(name, time.Second)
		runs.Applied(name, time.Second)
		box.Began(ballot.Entry{Policy: name}, rollout.Canary)
	}
	found := map[string]prometheus.Collector{}
	for _, c := range all.list {
		for name, labels := range described(t, c) {
			if labels.Has("policy") {
				found[name] = c
			}
		}
	}
	return found
}

// fill gives a vector a series of a policy.
func fill(t *testing.T, c prometheus.Collector, policy string) (gauge bool) {
	t.Helper()
	labels := prometheus.Labels{}
	for _, of := range described(t, c) {
		for label := range of {
			labels[label] = "x"
		}
	}
	labels["policy"] = policy
	switch v := c.(type) {
	case *prometheus.GaugeVec:
		v.With(labels).Set(1)
		return true
	case *prometheus.CounterVec:
		v.With(labels).Inc()
	case *prometheus.HistogramVec:
		v.With(labels).Observe(1)
	default:
		t.Fatalf("a metric of another kind: %T", c)
	}
	return false
}

// policiesOf are the values of the label.
func policiesOf(t *testing.T, c prometheus.Collector) sets.Set[string] {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := sets.New[string]()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, pair := range m.GetLabel() {
				if pair.GetName() == "policy" {
					found.Insert(pair.GetValue())
				}
			}
		}
	}
	return found
}

// dropsWhatIsGone deletes a policy: what counts drops its series, and gauges do not.
func dropsWhatIsGone(t *testing.T, names *policynames.Names, all map[string]prometheus.Collector) {
	t.Helper()
	now := time.Unix(1_700_000_000, 0)
	gone := func(string) bool { return false }
	names.Keep(gone, now)
	for name, c := range all {
		before := testutil.CollectAndCount(c)
		gauge := fill(t, c, "p-7")
		if _, said := gauges()[strings.TrimPrefix(name, "syncopate_")]; gauge != said {
			t.Errorf("%s is a gauge: %t; it is among the gauges: %t", name, gauge, said)
		}
		if testutil.CollectAndCount(c) == before {
			t.Errorf("%s has no series of its own for a policy", name)
		}
	}
	names.Keep(gone, now.Add(time.Hour))
	for name, c := range all {
		_, kept := gauges()[strings.TrimPrefix(name, "syncopate_")]
		if has := policiesOf(t, c).Has("p-7"); has != kept {
			t.Errorf("%s has series of a deleted policy: %t; want %t", name, has, kept)
		}
	}
}

// What counts has the names of 200 policies at most, and drops those of policies that were deleted.
// Gauges have all names, since they cannot be shared; these go with what they show.
//
// mutation: a counter or a histogram that does not ask for its label, or is not handed to Drop, and
// a metric with the label that is in none of the packages here make this fail.
func TestEachMetricWithTheNameOfAPolicyHasABound(t *testing.T) {
	names := policynames.New()
	for i := range 199 {
		names.Label(fmt.Sprint("p-", i))
	}
	all := vectors(t, names)
	for name, c := range all {
		if testutil.CollectAndCount(c) == 0 {
			continue // its package does not export what counts it
		}
		if got := policiesOf(t, c); got.Has("one-more") || !got.Has(policynames.Other) {
			t.Errorf("%s has more names than it may: %q", name, sets.List(got))
		}
	}
	dropsWhatIsGone(t, names, all)
	registered := map[string]bool{}
	for name, labels := range known(t) {
		if labels.Has("policy") && strings.HasPrefix(name, "syncopate_") {
			registered[name] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(registered)), slices.Sorted(maps.Keys(all))); diff != "" {
		t.Errorf("metrics with the label (-of the operator +looked at):\n%s", diff)
	}
}
