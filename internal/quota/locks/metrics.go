// SPDX-License-Identifier: Apache-2.0

package locks

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what becomes of locks. Its labels are words of this package.
type Metrics struct {
	answers *prometheus.CounterVec
	rebuild *prometheus.CounterVec
	leaked  prometheus.Counter
	missing prometheus.Counter
	held    prometheus.Gauge
	waiting prometheus.Gauge
	oldest  prometheus.Gauge
}

// NewMetrics registers the metrics; with a nil registry they count all the same.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	drift := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "syncopate_locks_drift_total", Help: "Differences between what Redis has of locks across runs and the runs, which a resync repaired, by kind.",
	}, []string{"kind"})
	m := &Metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_locks_answers_total", Help: "Questions for locks across runs, by what became of them.",
		}, []string{"state"}),
		rebuild: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_locks_rebuilds_total", Help: "How often locks across runs were counted anew from the runs, by outcome.",
		}, []string{"outcome"}),
		leaked: drift.WithLabelValues("leaked"), missing: drift.WithLabelValues("missing"),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "syncopate_locks_held", Help: "Runs and steps that hold locks across runs, as of the last resync.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "syncopate_locks_waiting", Help: "Runs and steps that wait for locks across runs, as of the last resync.",
		}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "syncopate_locks_oldest_contended_hold_seconds", Help: "Age of the oldest hold of a lock across runs for which somebody waits, as of the last resync.",
		}),
	}
	if registry != nil {
		registry.MustRegister(m.answers, m.rebuild, drift, m.held, m.waiting, m.oldest)
	}
	return m
}

func (m *Metrics) answered(state string) { m.answers.WithLabelValues(state).Inc() }

func (m *Metrics) rebuilt(err error) {
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	m.rebuild.WithLabelValues(outcome).Inc()
}
