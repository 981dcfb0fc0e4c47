// SPDX-License-Identifier: Apache-2.0

package results

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// mutation: orphans left out, the time of arrival for that of storage, or classes left out,
// makes this fail.
func TestWhatWaitsIsExported(t *testing.T) {
	r := NewRouter(Options{Inbox: NewInbox(10, 1<<20), Clock: clocktesting.NewFakeClock(epoch)})
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewWaitingResults(r, func() map[string]int { return map[string]int{"lock_busy": 7} }))
	figures := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return got
	}
	want := map[string]float64{
		"syncopate_inbox_results": 0, "syncopate_inbox_bytes": 0, "syncopate_inbox_limit_bytes": 1<<20 + orphanBytes,
		"syncopate_inbox_oldest_seconds": 0, "syncopate_results_parked": 7,
	}
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("nothing waits (-want +got):\n%s", diff)
	}
	stored := func(ago time.Duration) *Pending {
		return &Pending{Fact: lifecycle.Result{PublishedAt: epoch.Add(-ago)}, Since: epoch, Size: 100}
	}
	r.Inbox.Put("ns", "a", stored(2*time.Second))
	r.orphans.parked.Put("", "b", stored(5*time.Second))
	want["syncopate_inbox_results"], want["syncopate_inbox_bytes"], want["syncopate_inbox_oldest_seconds"] = 2, 2*(100+pendingBytes), 5
	if diff := cmp.Diff(want, figures()); diff != "" {
		t.Errorf("two wait (-want +got):\n%s", diff)
	}
}
