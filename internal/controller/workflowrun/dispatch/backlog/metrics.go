// SPDX-License-Identifier: Apache-2.0

package backlog

import "github.com/prometheus/client_golang/prometheus"

// What the gauges of a room are called, and mean.
var (
	descHeld = prometheus.NewDesc("syncopate_job_share_bytes",
		"What the jobs in flight of this replica hold of the stream of jobs, as far as it knows.", nil, nil)
	descLimit = prometheus.NewDesc("syncopate_job_share_limit_bytes",
		"What all of them together may hold. Not there while the stream has no limit.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *Room) Describe(out chan<- *prometheus.Desc) {
	r.refused.Describe(out)
	out <- descHeld
	out <- descLimit
}

// Collect implements prometheus.Collector.
func (r *Room) Collect(out chan<- prometheus.Metric) {
	r.mu.Lock()
	held := r.room.Used()
	limit, bounded := r.limit()
	r.mu.Unlock()
	r.refused.Collect(out)
	out <- prometheus.MustNewConstMetric(descHeld, prometheus.GaugeValue, float64(held))
	if bounded {
		out <- prometheus.MustNewConstMetric(descLimit, prometheus.GaugeValue, float64(max(0, limit)))
	}
}
