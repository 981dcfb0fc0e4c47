// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// mutation: an outcome that is taken for another, or drift that is not counted, makes this fail.
func TestMetrics(t *testing.T) {
	server := miniredis.RunT(t)
	s := newScene(t, testClient(t, server.Addr()), nil, 1)
	reg := prometheus.NewRegistry()
	s.quota.opts.Metrics = NewMetrics(reg, 2)
	s.admits(run("a", 0, 9))
	s.waits(run("b", 0, 8), 1, "")
	s.reserves("c", false)
	s.limit(9).reserves("c", true)
	locked := *s
	locked.limits.Lock = &LockSettings{TTL: patience}
	locked.waits(run("b", 0, 8), 1, "")
	must(t, s.client.Set(t.Context(), lockKey(s), "another", 0).Err(), "take the lock")
	_, _ = s.quota.Admit(t.Context(), acme(), locked.limits, run("b", 0, 8))
	must(t, s.quota.Restore(t.Context(), acme(), []string{"a", "x", "y"}), "restore")
	_, err := s.quota.Drop(t.Context(), acme(), s.limits, []string{"a", "b", "c", "unknown"})
	must(t, err, "drop")
	for i := range 3 { // closed; acme and 0 have labels of their own
		_, _ = s.quota.Admit(t.Context(), Key{Tenant: strconv.Itoa(i)}, s.limits, run("a", 0, 0))
	}
	server.Close()
	_, _ = s.quota.Reserve(t.Context(), acme(), s.limits, run("a", 0, 0), time.Minute)

	want := `
# HELP syncopate_admission_drift_total Differences between slots and runs that were repaired: slots of no run (leaked), runs without a slot (missing), places in line of no run (stale_place).
# TYPE syncopate_admission_drift_total counter
syncopate_admission_drift_total{kind="leaked"} 1
syncopate_admission_drift_total{kind="missing"} 2
syncopate_admission_drift_total{kind="stale_place"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "syncopate_admission_drift_total"); err != nil {
		t.Error(err)
	}
	if diff := counts(t, reg, map[string]int{
		"syncopate_admission_decision_seconds acme admitted controller atomic":    1,
		"syncopate_admission_decision_seconds acme waiting controller atomic":     1,
		"syncopate_admission_decision_seconds acme rejected webhook atomic":       1,
		"syncopate_admission_decision_seconds acme admitted webhook atomic":       1,
		"syncopate_admission_decision_seconds acme waiting controller lock":       1,
		"syncopate_admission_decision_seconds acme busy controller lock":          1,
		"syncopate_admission_decision_seconds acme unavailable webhook atomic":    1,
		"syncopate_admission_decision_seconds 0 rebuilding controller atomic":     1,
		"syncopate_admission_decision_seconds other rebuilding controller atomic": 2,
		"syncopate_admission_lock_wait_seconds acme acquired controller":          1,
		"syncopate_admission_lock_wait_seconds acme busy controller":              1,
	}); diff != "" {
		t.Error(diff)
	}
	if problems, err := testutil.GatherAndLint(reg); len(problems) > 0 || err != nil {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// counts compares how often histograms were observed, by name and labels: tenant,
// outcome, surface, strategy.
func counts(t *testing.T, reg *prometheus.Registry, want map[string]int) string {
	t.Helper()
	families, err := reg.Gather()
	must(t, err, "gather")
	got := map[string]int{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetHistogram() == nil {
				continue
			}
			name := family.GetName()
			for _, label := range []string{"tenant", "outcome", "surface", "strategy"} {
				for _, pair := range m.GetLabel() {
					if pair.GetName() == label {
						name += " " + pair.GetValue()
					}
				}
			}
			got[name] = int(m.GetHistogram().GetSampleCount())
		}
	}
	return cmp.Diff(want, got)
}

// mutations: show that does not end what it showed before, or shows more tenants than it may, and
// Show that takes the tenants of a pool for one, make this fail.
func TestWhoHasSlotsAndWhoWaitsIsShown(t *testing.T) {
	reg := prometheus.NewRegistry()
	g := New(testClient(t, "127.0.0.1:1"), Options{Metrics: NewMetrics(reg, 2)})
	of := func(tenant string) Run { return Run{Tenant: tenant} }
	g.Show(map[Key]Snapshot{acme(): {Slots: []Slot{{}, {}}, Queue: []Run{{}}}, {Policy: "old", Tenant: "acme"}: {Queue: []Run{{}}}, {Tenant: "idle"}: {}})
	g.Show(map[Key]Snapshot{acme(): {Slots: []Slot{{}}}, PoolOf("pool"): {Slots: []Slot{{Tenant: "beta"}}, Queue: []Run{of("acme"), of("beta"), of("acme")}}})
	g.Show(map[Key]Snapshot{
		acme(): {Slots: []Slot{{}}}, {Policy: "batch", Tenant: "third"}: {Queue: []Run{{}}},
		PoolOf("pool"): {Slots: []Slot{{Tenant: "beta"}}, Queue: []Run{of("acme"), of("acme"), of("third"), of("beta")}},
	})
	want := `
# HELP syncopate_admission_queue_length Runs in line of each tenant that has any, or an admitted one, as of the last resync; of the replica that makes resyncs.
# TYPE syncopate_admission_queue_length gauge
syncopate_admission_queue_length{policy="batch",tenant="acme"} 0
syncopate_admission_queue_length{policy="pool",tenant="acme"} 2
syncopate_admission_queue_length{policy="pool",tenant="beta"} 1
# HELP syncopate_admission_slots Admitted runs of each tenant that has any, or one that waits, as of the last resync; of the replica that makes resyncs.
# TYPE syncopate_admission_slots gauge
syncopate_admission_slots{policy="batch",tenant="acme"} 1
syncopate_admission_slots{policy="pool",tenant="acme"} 0
syncopate_admission_slots{policy="pool",tenant="beta"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "syncopate_admission_queue_length", "syncopate_admission_slots"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); len(problems) > 0 || err != nil {
		t.Errorf("lint: %v, %v", problems, err)
	}
	g.Show(nil)
	if n, err := testutil.GatherAndCount(reg, "syncopate_admission_queue_length", "syncopate_admission_slots"); n != 0 || err != nil {
		t.Errorf("%d series where nobody makes resyncs, %v", n, err)
	}
}

// An alert tells of tenants that wait. With more tenants than have gauges it has to be
// those that do.
//
// mutations: show that keeps the first for good, that prefers who has slots to who waits, or that
// ends a gauge for a longer line, makes this fail.
func TestTenantsThatWaitHaveTheGauges(t *testing.T) {
	m := NewMetrics(nil, 2)
	of := func(tenant string) Key { return Key{Policy: "batch", Tenant: tenant} }
	shows := func(what string, now map[Key]standing, want ...string) {
		t.Helper()
		m.show(now)
		if n := testutil.CollectAndCount(m.waiting); n != len(want) || testutil.CollectAndCount(m.slots) != n {
			t.Errorf("%s: %d series, want %d", what, n, len(want))
		}
		for _, tenant := range want {
			if got := testutil.ToFloat64(m.waiting.WithLabelValues(tenant, "batch")); got != float64(now[of(tenant)].waiting) {
				t.Errorf("%s: %v of %s wait", what, got, tenant)
			}
		}
	}
	m.decided("x", "atomic", surfaceWebhook, outcomeAdmitted, 0) // who has a label there needs no gauge
	shows("two come", map[Key]standing{of("a"): {slots: 1}, of("b"): {slots: 2, waiting: 1}}, "a", "b")
	shows("others wait", map[Key]standing{of("a"): {slots: 1}, of("b"): {waiting: 1}, of("c"): {waiting: 3}, of("d"): {waiting: 2}}, "b", "c")
	shows("a longer line", map[Key]standing{of("b"): {waiting: 1}, of("c"): {waiting: 3}, of("d"): {waiting: 9}}, "b", "c")
	shows("one is done", map[Key]standing{of("c"): {waiting: 3}, of("d"): {waiting: 9}}, "c", "d")
	shows("all are done", map[Key]standing{of("e"): {waiting: 3}}, "e")
}

// Whoever waits for good would keep all gauges from a line that is far longer.
//
// mutation: first that keeps all who wait makes this fail; so does one that keeps nobody for
// a longer line.
func TestTheLongestLineHasAGauge(t *testing.T) {
	const most = 5
	m, now := NewMetrics(nil, most), map[Key]standing{}
	of := func(tenant int) Key { return Key{Policy: "batch", Tenant: strconv.Itoa(tenant)} }
	for i := range most {
		now[of(i)] = standing{waiting: 1}
	}
	m.show(now)
	now[of(most)], now[of(most+1)] = standing{waiting: 10_000}, standing{waiting: 9}
	for range 2 {
		m.show(now)
		if _, shown := m.shown[of(most)]; !shown || len(m.shown) != most {
			t.Errorf("shown: %v", m.shown)
		}
		if _, shown := m.shown[of(most+1)]; shown {
			t.Error("who waits is ended for the second of the lines")
		}
	}
}

// The objectives count what is within a bound; it has to be that of a bucket (docs/slo.md).
//
// mutation: other buckets make this fail.
func TestBoundsOfObjectivesAreBuckets(t *testing.T) {
	reg := prometheus.NewRegistry()
	NewMetrics(reg, 1).decided("acme", "lock", surfaceWebhook, outcomeAdmitted, 0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for name, bound := range map[string]float64{"syncopate_admission_decision_seconds": 0.512} {
		found := false
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, b := range m.GetHistogram().GetBucket() {
					found = found || (f.GetName() == name && b.GetUpperBound() == bound)
				}
			}
		}
		if !found {
			t.Errorf("%s has no bucket up to %v", name, bound)
		}
	}
}
