// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		r := request()
		r.PolicyName, r.Path = "batch", "result"

		b.fates("acquire", refused, works)
		if _, err := b.m.Acquire(t.Context(), r); err == nil {
			t.Fatal("the take succeeded")
		}
		r.Retries = 3
		l := b.acquire(r)
		b.isBusy(b.m, true) // does not go to Redis
		b.fates("renew", works, refused)
		b.pass(30 * time.Second)
		b.isLost(l, RenewalFailuresExceeded)
		l.Release(t.Context())
		b.m.opts.Metrics.BusyRetry("reconcile", "lock_busy", "batch", false, 400*time.Millisecond)
		b.m.opts.Metrics.BusyRetry("reconcile", "lock_busy", "batch", true, 500*time.Millisecond)

		b.m.opts.Metrics.Taken("admission", "batch", 1)

		want := `
# HELP syncopate_lock_busy_retries_total Retries that were scheduled because a lock was busy.
# TYPE syncopate_lock_busy_retries_total counter
syncopate_lock_busy_retries_total{class="lock_busy",path="reconcile",policy="batch"} 2
# HELP syncopate_run_lock_abandoned_total Run locks that were lost while work was done under them.
# TYPE syncopate_run_lock_abandoned_total counter
syncopate_run_lock_abandoned_total{path="result",policy="batch",reason="RenewalFailuresExceeded"} 1
# HELP syncopate_run_lock_acquisitions_total Tries to take a run lock that went to Redis.
# TYPE syncopate_run_lock_acquisitions_total counter
syncopate_run_lock_acquisitions_total{outcome="acquired"} 1
syncopate_run_lock_acquisitions_total{outcome="error"} 1
# HELP syncopate_run_lock_renewals_total Renewals of run locks.
# TYPE syncopate_run_lock_renewals_total counter
syncopate_run_lock_renewals_total{outcome="error",policy="batch"} 3
syncopate_run_lock_renewals_total{outcome="ok",policy="batch"} 1
# HELP syncopate_locks_taken_total Locks that were had, by how often they had been tried again before: 0, 1 or more.
# TYPE syncopate_locks_taken_total counter
syncopate_locks_taken_total{path="admission",policy="batch",retries="1"} 1
syncopate_locks_taken_total{path="result",policy="batch",retries="more"} 1
`
		if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want), "syncopate_lock_busy_retries_total",
			"syncopate_run_lock_abandoned_total", "syncopate_run_lock_acquisitions_total", "syncopate_run_lock_renewals_total",
			"syncopate_locks_taken_total"); err != nil {
			t.Error(err)
		}
		for name, want := range map[string]int{
			"syncopate_lock_busy_retry_delay_seconds":       2,
			"syncopate_run_lock_wait_seconds":               2,
			"syncopate_run_lock_hold_seconds":               1,
			"syncopate_run_lock_validity_remaining_seconds": 1,
		} {
			if got, err := testutil.GatherAndCount(b.reg, name); got != want || err != nil {
				t.Errorf("%s has %d series, %v; want %d", name, got, err, want)
			}
		}
		if problems, err := testutil.GatherAndLint(b.reg); len(problems) > 0 || err != nil {
			t.Errorf("lint: %v, %v", problems, err)
		}
	})
}

// The objectives count what is within a bound; it has to be that of a bucket (docs/slo.md).
//
// mutation: other buckets make this fail.
func TestBoundsOfObjectivesAreBuckets(t *testing.T) {
	reg := prometheus.NewRegistry()
	NewMetrics(reg, nil).waited(Request{}, outcomeAcquired, 0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for name, bound := range map[string]float64{"syncopate_run_lock_wait_seconds": 2.048} {
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
