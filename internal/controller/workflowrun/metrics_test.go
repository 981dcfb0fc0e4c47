// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The objectives count what is within a bound; it has to be that of a bucket (docs/slo.md).
//
// mutation: other buckets make this fail.
func TestBoundsOfObjectivesAreBuckets(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, nil)
	m.resultLatency.WithLabelValues("batch").Observe(0)
	m.TakeOver.Observe(0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for name, bound := range map[string]float64{"syncopate_job_result_latency_seconds": 2.048, "syncopate_take_over_seconds": 60} {
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

// An alert is about writes of which none is taken: also where none was since the process began.
//
// mutation: outcomes that come when they are counted first.
func TestAllOutcomesOfWritesAreThereFromTheStart(t *testing.T) {
	reg := prometheus.NewRegistry()
	NewMetrics(reg, nil)
	if n, err := testutil.GatherAndCount(reg, "syncopate_status_writes_total"); err != nil || n != 4 {
		t.Errorf("%d outcomes, %v", n, err)
	}
}
