// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Prometheus' rate sees what is added to a series. One that begins with the first hand-over has
// nothing added to it until the second.
//
// mutation: NewMetrics that leaves out a kind makes this fail.
func TestHandOversAreCountedFromNone(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	NewMetrics(reg)
	if n, err := testutil.GatherAndCount(reg, "syncopate_handover_seconds"); n != 2 || err != nil {
		t.Errorf("%d series of hand-overs before the first: %v; want one for each kind", n, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "syncopate_handover_seconds" && f.GetMetric()[0].GetHistogram().GetSampleCount() != 0 {
			t.Error("one is counted that was not")
		}
	}
}
