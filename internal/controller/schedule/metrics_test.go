// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// filled is a cache that has its schedules at once, on a machine that is busy, too.
type filled struct {
	client.Reader

	all v1alpha1.ScheduleList
}

// List implements client.Reader.
func (f *filled) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if all, ok := list.(*v1alpha1.ScheduleList); ok {
		f.all.DeepCopyInto(all)
	}
	return nil
}

// mutations: HeldCounts that counts schedules of other replicas, or those that start runs, or that
// leaves out those whose template is refused.
func TestSchedulesThatStartNoRunsAreCounted(t *testing.T) {
	w := newWorld(t)
	invalid := func(s *v1alpha1.Schedule) { s.Spec.Cron = []string{"0 0 31 2 *x"} }
	suspended := func(s *v1alpha1.Schedule) { s.Spec.Suspend = true }
	others := map[types.UID]bool{}
	refused := func(s *v1alpha1.Schedule) {
		s.Spec.RunTemplate.Spec.Raw = []byte(`{"steps":[{"name":"A","job":{"topic":"reports.daily"}}]}`)
	}
	changes := map[string]func(*v1alpha1.Schedule){
		"a": invalid, "b": invalid, "c": suspended, "d": nil, "e": refused, "f": refused, "g": refused, "other": invalid, "doubt": nil,
	}
	for name, change := range changes {
		s := w.schedule(name, change)
		r := w.operator()
		if name == "doubt" {
			w.answers(func(bool) error { return errFull })
			r, w.funcs = w.operator(), interceptor.Funcs{}
		}
		w.settle(r, s)
		others[s.UID] = name == "other"
	}
	cache := &filled{}
	if err := w.client.List(t.Context(), &cache.all, client.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	counts := NewHeldCounts(t.Context(), cache, func(uid types.UID) bool { return !others[uid] })
	want := `
# HELP syncopate_schedules_held Schedules of this replica that start no runs, by the reason for that.
# TYPE syncopate_schedules_held gauge
syncopate_schedules_held{reason="InvalidSpec"} 2
syncopate_schedules_held{reason="Paused"} 0
syncopate_schedules_held{reason="Stopped"} 0
syncopate_schedules_held{reason="Suspended"} 1
syncopate_schedules_held{reason="TemplateRefused"} 3
`
	if err := testutil.CollectAndCompare(counts, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
