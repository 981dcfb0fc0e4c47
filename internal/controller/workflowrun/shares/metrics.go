// SPDX-License-Identifier: Apache-2.0

package shares

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of all kinds of places; docs/architecture.md lists them.
type Metrics struct {
	used    *prometheus.GaugeVec
	waits   *prometheus.CounterVec
	waiting *prometheus.GaugeVec
}

// NewMetrics makes and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		used: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_places_used", Help: "Places in use that tenants share, by kind: pass, schedule, workflow and approval (passes over those), write (of status), create (of child runs), aside (passes that need a desk), desk (costly expressions and large outputs), gate (questions to gates of strategy Lock).",
		}, []string{"kind"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_place_waits_total", Help: "Requests for a place that had to wait, by kind: pass, schedule, workflow, approval, write, create, aside, desk, gate.",
		}, []string{"kind"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_places_waiting", Help: "Requests that wait for a place now, by kind: pass, schedule, workflow, approval, write, create, aside, desk, gate.",
		}, []string{"kind"}),
	}
	reg.MustRegister(m.used, m.waits, m.waiting)
	return m
}

// KindMetrics are those of one kind of places; the zero value counts nothing.
type KindMetrics struct {
	used    prometheus.Gauge
	waits   prometheus.Counter
	waiting prometheus.Gauge
}

// Of are the metrics of a kind of places.
func (m *Metrics) Of(kind string) KindMetrics {
	return KindMetrics{m.used.WithLabelValues(kind), m.waits.WithLabelValues(kind), m.waiting.WithLabelValues(kind)}
}

// changed notes how many places are in use and how many requests wait, more or fewer than before.
func (m KindMetrics) changed(used, waiting int) {
	if m.used == nil {
		return
	}
	m.used.Add(float64(used))
	m.waiting.Add(float64(waiting))
	if waiting > 0 {
		m.waits.Inc()
	}
}
