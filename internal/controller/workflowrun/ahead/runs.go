// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Runs are those of this process that are ahead of their status. Safe for concurrent use; the zero
// value has none.
type Runs struct {
	mu    sync.Mutex
	byRun map[types.UID]entry
}

type entry struct {
	key   types.NamespacedName
	since time.Time
	n     int
}

// note notes how far a run is ahead.
func (r *Runs) note(uid types.UID, key types.NamespacedName, since time.Time, results int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byRun == nil {
		r.byRun = map[types.UID]entry{}
	}
	r.byRun[uid] = entry{key, since, results}
}

// Forget notes that a run is not ahead, is gone, or is driven by another process.
func (r *Runs) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byRun, uid)
}

// In are the runs of partitions.
func (r *Runs) In(of map[int]bool) (keys []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, e := range r.byRun {
		if of[protocol.Partition(string(uid))] {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// Partitions are those with runs that are ahead.
func (r *Runs) Partitions() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := map[int]bool{}
	for uid := range r.byRun {
		of[protocol.Partition(string(uid))] = true
	}
	return of
}

// Lag is how far runs are ahead of their status.
type Lag struct {
	Runs, Results int
	Oldest        time.Time // since when; zero: none is
}

// Lag says how far runs are ahead.
func (r *Runs) Lag() (l Lag) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.byRun {
		l.Runs++
		l.Results += e.n
		if l.Oldest.IsZero() || e.since.Before(l.Oldest) {
			l.Oldest = e.since
		}
	}
	return l
}

// The metrics of Runs.
var (
	runsDesc    = prometheus.NewDesc("syncopate_runs_ahead", "Runs of this replica that are ahead of their status.", nil, nil)
	resultsDesc = prometheus.NewDesc("syncopate_results_ahead", "Results that are applied and not acknowledged, because status does not have them yet.", nil, nil)
	oldestDesc  = prometheus.NewDesc("syncopate_ahead_oldest_seconds", "For how long the status of a run lags behind, at the most.", nil, nil)
)

// Collector tells metrics of runs that are ahead.
type Collector struct {
	Runs *Runs
	Now  func() time.Time
}

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- runsDesc
	ch <- resultsDesc
	ch <- oldestDesc
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	l := c.Runs.Lag()
	age := 0.0
	if !l.Oldest.IsZero() {
		age = max(0, c.Now().Sub(l.Oldest).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(runsDesc, prometheus.GaugeValue, float64(l.Runs))
	ch <- prometheus.MustNewConstMetric(resultsDesc, prometheus.GaugeValue, float64(l.Results))
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age)
}
