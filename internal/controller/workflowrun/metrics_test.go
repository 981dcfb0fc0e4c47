package workflowrun

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// mutation: a take-over that is measured twice, of a run that this process wrote, that is new, or that has ended, makes this fail.
func TestTakeOversAreMeasuredOncePerRun(t *testing.T) {
	written := func(lease string) *v1alpha1.WorkflowRun {
		run := aRun("1")
		run.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
		run.Status = &v1alpha1.WorkflowRunStatus{Fence: new(int64(7)), Lock: &v1alpha1.RunLockStatus{LeaseID: lease}}
		return run
	}
	young, ended := written("of another"), written("of another")
	young.CreationTimestamp, ended.Status.CompletedAt = metav1.NewTime(epoch.Add(time.Second)), new(metav1.NewTime(epoch))
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		mem  memory
		want string
	}{
		"a run of another leader":         {written("of another"), memory{}, "syncopate_take_over_seconds_sum 20\nsyncopate_take_over_seconds_count 1\n"},
		"one that this process wrote":     {written("ours"), memory{writer: "ours"}, ""},
		"one that was created after that": {young, memory{}, ""},
		"one that has ended":              {ended, memory{}, ""},
		"one that nobody has written":     {aRun("1"), memory{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(epoch)
			registry := prometheus.NewRegistry()
			r := &Reconciler{clock: clock, metrics: NewMetrics(registry)}
			p := &pass{Reconciler: r, run: c.run, mem: &c.mem}
			p.waitedEnough() // before this process leads
			began := clock.Now()
			r.leading.Store(&began)
			for range 2 {
				clock.Step(20 * time.Second)
				p.waitedEnough()
			}
			if got := sums(t, registry, "syncopate_take_over_seconds"); got != c.want {
				t.Errorf("measured %q; want %q", got, c.want)
			}
		})
	}
}

// sums are the sum and the count of a histogram, if there were observations.
func sums(t *testing.T, registry prometheus.Gatherer, name string) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); f.GetName() == name && h.GetSampleCount() > 0 {
			return fmt.Sprintf("%s_sum %v\n%s_count %d\n", name, h.GetSampleSum(), name, h.GetSampleCount())
		}
	}
	return ""
}

// mutation: time that counts only once a lease is had again, or from its loss with each try, makes this fail.
func TestTimeWithoutALeaseCountsWhileItGoesOn(t *testing.T) {
	clock := clocktesting.NewFakeClock(epoch)
	registry := prometheus.NewRegistry()
	r := &Reconciler{clock: clock, metrics: NewMetrics(registry), locked: lockmgr.NewMetrics(registry)}
	p := &pass{Reconciler: r, run: aRun("1"), mem: &memory{leaselessSince: epoch}, policy: policy.Effective{Name: "strict"}}
	expect := func(want float64) {
		t.Helper()
		text := fmt.Sprintf(`
# HELP syncopate_run_lock_lease_seconds_total Time in which runs were worked on under a lease, by whether it was valid, or had lost one and wanted it back (invalid).
# TYPE syncopate_run_lock_lease_seconds_total counter
syncopate_run_lock_lease_seconds_total{policy="strict",state="invalid"} %v
`, want)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "syncopate_run_lock_lease_seconds_total"); err != nil {
			t.Error(err)
		}
	}
	for i := range 3 {
		clock.Step(5 * time.Second)
		p.countLeaseless()
		expect(float64(5 * (i + 1)))
	}
	clock.Step(time.Second)
	p.waitedEnough()
	expect(16)
	clock.Step(time.Hour)
	p.waitedEnough()
	expect(16)
}

// The objectives count what is within a bound; it has to be that of a bucket (docs/slo.md).
//
// mutation: other buckets make this fail.
func TestBoundsOfObjectivesAreBuckets(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	m.applied("batch", 0)
	m.takeOver.Observe(0)
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
