// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the Prometheus metrics of the queue.
type Metrics struct {
	topicsRefused prometheus.Counter
	fences        prometheus.Counter
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		topicsRefused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_topics_refused_total",
			Help: "How often a topic got no consumer because it would have been one too many: a job is not published then, or those that are queued reach no worker.",
		}),
		fences: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_job_fences_total",
			Help: "Fence messages stored: each begins a new epoch of an attempt that another process, or an earlier try, may have published.",
		}),
	}
	reg.MustRegister(m.topicsRefused, m.fences)
	return m
}
