// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// bare is a run that nobody has written.
func bare() *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run", UID: "uid"}, Status: &v1alpha1.WorkflowRunStatus{}}
}

// mutation: a take-over that is measured twice, of a run that this process wrote, that is new, or
// that has ended, makes this fail.
func TestTakeOversAreMeasuredOncePerRun(t *testing.T) {
	written := func(lease string) *v1alpha1.WorkflowRun {
		run := bare()
		run.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Hour))
		run.Status = &v1alpha1.WorkflowRunStatus{Fence: new(int64(7)), Lock: &v1alpha1.RunLockStatus{LeaseID: lease}}
		return run
	}
	young, ended := written("of another"), written("of another")
	young.CreationTimestamp, ended.Status.CompletedAt = metav1.NewTime(epoch.Add(time.Second)), new(metav1.NewTime(epoch))
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		mem  State
		want string
	}{
		"a run of another replica":        {written("of another"), State{}, "syncopate_take_over_seconds_sum 20\nsyncopate_take_over_seconds_count 1\n"},
		"one that this process wrote":     {written("ours"), State{Writer: "ours"}, ""},
		"one that was created after that": {young, State{}, ""},
		"one that has ended":              {ended, State{}, ""},
		"one that nobody has written":     {bare(), State{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(epoch)
			registry := prometheus.NewRegistry()
			takeOver := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "syncopate_take_over_seconds", Help: "Taken over."})
			registry.MustRegister(takeOver)
			var began time.Time
			l := New(Options{Clock: clock, TakeOver: takeOver, DrivenSince: func(types.UID) time.Time { return began }})
			s := l.Session(&c.mem, types.NamespacedName{}, "uid", policy.Effective{})
			s.WaitedEnough(c.run) // before this process drives it
			began = clock.Now()
			for range 2 {
				clock.Step(20 * time.Second)
				s.WaitedEnough(c.run)
			}
			if got := sums(t, registry, "syncopate_take_over_seconds"); got != c.want {
				t.Errorf("measured %q; want %q", got, c.want)
			}
		})
	}
}

// mutation: noteInHand that asks nobody since when it drives the run makes this fail.
func TestAProcessThatDrivesAllTakesNoneOver(t *testing.T) {
	New(Options{Clock: clocktesting.NewFakeClock(epoch)}).Session(&State{}, types.NamespacedName{}, "uid", policy.Effective{}).WaitedEnough(bare())
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

// mutation: time that counts only once a lease is had again, or from its loss with each try,
// makes this fail.
func TestTimeWithoutALeaseCountsWhileItGoesOn(t *testing.T) {
	clock := clocktesting.NewFakeClock(epoch)
	registry := prometheus.NewRegistry()
	l := New(Options{Clock: clock, Metrics: lockmgr.NewMetrics(registry, nil), DrivenSince: func(types.UID) time.Time { return time.Time{} }})
	s := l.Session(&State{leaselessSince: epoch}, types.NamespacedName{}, "uid", policy.Effective{Name: "strict"})
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
		s.CountLeaseless()
		expect(float64(5 * (i + 1)))
	}
	clock.Step(time.Second)
	s.WaitedEnough(bare())
	expect(16)
	clock.Step(time.Hour)
	s.WaitedEnough(bare())
	expect(16)
}
