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

// lockWaits is how much the runs of a policy waited for locks, over all paths.
type lockWaits struct {
	busyRetries float64
	acquired    buckets // waits for locks that were taken, in seconds
}

// buckets is a histogram: the number of observations up to each upper bound; the last bound is +Inf.
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
			name := label(m, "policy")
			w := waits[name]
			switch {
			case family.GetName() == busyRetriesMetric:
				w.busyRetries += m.GetCounter().GetValue()
			case family.GetName() == lockWaitMetric && label(m, "outcome") == "acquired":
				w.acquired = w.acquired.plus(m.GetHistogram())
			default:
				continue
			}
			waits[name] = w
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
	sum := maps.Clone(b)
	if sum == nil {
		sum = buckets{}
	}
	for _, bucket := range h.GetBucket() {
		if !math.IsInf(bucket.GetUpperBound(), 1) {
			sum[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	sum[math.Inf(1)] += h.GetSampleCount()
	return sum
}

// minus is what was added since before. Counts of this process never go down.
func (b buckets) minus(before buckets) buckets {
	added := buckets{}
	for bound, n := range b {
		added[bound] = n - before[bound]
	}
	return added
}

// quantile estimates the q-quantile as histogram_quantile of PromQL does: linear within a bucket, and the highest finite bound
// for what lies above it. 0 without observations.
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

// contention is what was added between two readings, a window apart.
func contention(before, after lockWaits, window time.Duration) *v1alpha1.LockContention {
	return &v1alpha1.LockContention{
		BusyRetriesPerMinute: int64(math.Round((after.busyRetries - before.busyRetries) / window.Minutes())),
		P95LockWaitMillis:    int64(math.Round(after.acquired.minus(before.acquired).quantile(0.95) * 1000)),
	}
}
