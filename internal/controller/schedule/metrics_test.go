// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// mutation: create that observes how long ago the slots of a backfill were makes this fail.
func TestABackfillIsNotLate(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.slot(-4)), To: metav1.NewTime(w.slot(-4))}
	})
	registry := prometheus.NewRegistry()
	r := w.operator()
	r.Metrics = NewMetrics(registry)
	w.settle(r, s)
	w.end(schedule.RunName("report", w.slot(-4)), v1alpha1.RunSucceeded)
	w.at(1, 1)
	w.settle(r, s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetHistogram().GetSampleCount() + uint64(m.GetCounter().GetValue())
		}
	}
	if got["syncopate_schedule_slots_total"] != 2 || got["syncopate_schedule_start_delay_seconds"] != 1 {
		t.Errorf("%v", got)
	}
}
