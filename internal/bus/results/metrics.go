// SPDX-License-Identifier: Apache-2.0

package results

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a result, for Metrics.CountResult.
const (
	OutcomeApplied      = "applied"
	OutcomeStale        = "stale"
	OutcomeDuplicate    = "duplicate"
	OutcomeDeadLettered = "dead_lettered" // counted by this package
	OutcomeRejected     = "rejected"      // counted by this package: it never reached handle
)

// Metrics are the Prometheus metrics of results.
type Metrics struct {
	retryDelay    *prometheus.HistogramVec
	redeliveryGap *prometheus.HistogramVec
	// redeliveryAsked has the delays of the same redeliveries as redeliveryGap: the two can be
	// compared. retryDelay also has those that came again elsewhere, or not yet.
	redeliveryAsked *prometheus.HistogramVec
	deadLetters     *prometheus.CounterVec
	results         *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	buckets := []float64{.01, .05, .1, .25, .35, .5, .65, 1, 2, 5, 10, 30, 60, 300}
	m := &Metrics{
		retryDelay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "syncopate_retry_delay_seconds",
			Help:    "Delay which a failed delivery asked for or a worker was granted, by class of the wait.",
			Buckets: buckets,
		}, []string{"class"}),
		redeliveryGap: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "syncopate_redelivery_gap_seconds",
			Help:    "Time from asking for a delay to the redelivery in the same process, by class of the wait.",
			Buckets: buckets,
		}, []string{"class"}),
		redeliveryAsked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "syncopate_redelivery_asked_seconds",
			Help:    "Delay that was asked for, of the redeliveries in syncopate_redelivery_gap_seconds, by class of the wait.",
			Buckets: buckets,
		}, []string{"class"}),
		deadLetters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_dead_letters_total",
			Help: "Messages moved to the dead letters, by reason.",
		}, []string{"reason"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_results_total",
			Help: "Results taken from the bus, by outcome.",
		}, []string{"outcome"}),
	}
	reg.MustRegister(m.retryDelay, m.redeliveryGap, m.redeliveryAsked, m.deadLetters, m.results)
	return m
}

// ObserveRetryDelay notes a delay that was granted elsewhere than by Settle: a worker's own wish,
// which a status remembers.
func (m *Metrics) ObserveRetryDelay(class string, d time.Duration) {
	m.retryDelay.WithLabelValues(class).Observe(d.Seconds())
}

// CountResult counts a result by what became of it. This package counts OutcomeDeadLettered
// and OutcomeRejected itself.
func (m *Metrics) CountResult(outcome string) { m.results.WithLabelValues(outcome).Inc() }
