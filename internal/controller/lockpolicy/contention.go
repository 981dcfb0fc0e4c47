// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// The metrics of internal/lockmgr that contention is computed from.
const (
	busyRetriesMetric = "syncopate_lock_busy_retries_total"
	lockWaitMetric    = "syncopate_run_lock_wait_seconds"
)

// runPaths are the paths of run locks. Admission locks are polled every few milliseconds: their
// retries say nothing about run locks.
var runPaths = []v1alpha1.LockPath{v1alpha1.PathReconcile, v1alpha1.PathResult}

// lockWaits is how much the runs of a policy waited for locks, by what they were wanted for.
type lockWaits map[v1alpha1.LockPath]pathWaits

// pathWaits are those of one path.
type pathWaits struct {
	busyRetries float64
	acquired    buckets // waits for locks that were taken, in seconds
}

// buckets is a histogram: the number of observations up to each upper bound; the last
// bound is +Inf.
type buckets map[float64]uint64

// readWaits reads the metrics, by policy.
func readWaits(metrics prometheus.Gatherer) (map[string]lockWaits, error) {
	families, err := metrics.Gather()
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	waits := map[string]lockWaits{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			policy, path := label(m, "policy"), v1alpha1.LockPath(label(m, "path"))
			w := waits[policy][path]
			switch {
			case family.GetName() == busyRetriesMetric:
				w.busyRetries += m.GetCounter().GetValue()
			case family.GetName() == lockWaitMetric && label(m, "outcome") == "acquired":
				w.acquired = w.acquired.plus(m.GetHistogram())
			default:
				continue
			}
			if waits[policy] == nil {
				waits[policy] = lockWaits{}
			}
			waits[policy][path] = w
		}
	}
	return waits, nil
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// plus adds the counts of a series; all series of a metric have the same bounds.
func (b buckets) plus(h *dto.Histogram) buckets {
	added := buckets{math.Inf(1): h.GetSampleCount()}
	for _, bucket := range h.GetBucket() {
		if !math.IsInf(bucket.GetUpperBound(), 1) {
			added[bucket.GetUpperBound()] = bucket.GetCumulativeCount()
		}
	}
	return b.and(added)
}

// and is the sum of two.
func (b buckets) and(other buckets) buckets {
	sum := buckets{}
	for _, one := range []buckets{b, other} {
		for bound, n := range one {
			sum[bound] += n
		}
	}
	return sum
}

// minus is what was added since before. Counts of this process go down only if the series was
// dropped meanwhile, as the policy was deleted: then all was added since.
func (b buckets) minus(before buckets) buckets {
	if b[math.Inf(1)] < before[math.Inf(1)] {
		return b
	}
	added := buckets{}
	for bound, n := range b {
		added[bound] = n - before[bound]
	}
	return added
}

// quantile estimates the q-quantile as histogram_quantile of PromQL does: linear within a bucket,
// and the highest finite bound for what lies above it. 0 without observations.
func (b buckets) quantile(q float64) float64 {
	total := b[math.Inf(1)]
	if total == 0 {
		return 0
	}
	rank, lower, below := q*float64(total), 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(b)) {
		upTo := float64(b[upper])
		if upTo >= rank && !math.IsInf(upper, 1) {
			return lower + (upper-lower)*(rank-below)/(upTo-below)
		}
		if !math.IsInf(upper, 1) {
			lower, below = upper, upTo
		}
	}
	return lower
}

// minus is what was added since before.
func (w pathWaits) minus(before pathWaits) pathWaits {
	if w.busyRetries < before.busyRetries {
		before.busyRetries = 0 // as of buckets
	}
	return pathWaits{busyRetries: w.busyRetries - before.busyRetries, acquired: w.acquired.minus(before.acquired)}
}

// percentile is in milliseconds.
func (w pathWaits) percentile(q float64) int64 {
	return int64(math.Round(w.acquired.quantile(q) * 1000))
}

// contention is what was added between two readings, a window apart.
func contention(before, after lockWaits, window time.Duration) *v1alpha1.LockContention {
	c := &v1alpha1.LockContention{}
	perMinute := func(retries float64) int64 { return int64(math.Round(retries / window.Minutes())) }
	var runs pathWaits
	for _, path := range append(slices.Clone(runPaths), v1alpha1.PathAdmission) {
		added := after[path].minus(before[path])
		c.Paths = append(c.Paths, v1alpha1.PathContention{
			Path: path, BusyRetriesPerMinute: perMinute(added.busyRetries),
			P95LockWaitMillis: added.percentile(0.95), P99LockWaitMillis: added.percentile(0.99),
		})
		if slices.Contains(runPaths, path) {
			runs = pathWaits{runs.busyRetries + added.busyRetries, runs.acquired.and(added.acquired)}
		}
	}
	c.BusyRetriesPerMinute = perMinute(runs.busyRetries)
	c.P95LockWaitMillis, c.P99LockWaitMillis = runs.percentile(0.95), runs.percentile(0.99)
	return c
}
