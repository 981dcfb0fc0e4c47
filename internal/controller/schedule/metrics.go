// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Metrics count slots.
type Metrics struct {
	slots *prometheus.CounterVec
	delay prometheus.Histogram
}

// NewMetrics registers the figures of schedules.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		slots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_schedule_slots_total", Help: "Slots of schedules, by what became of them: Started, or the reason for which there is no run.",
		}, []string{"outcome"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "syncopate_schedule_start_delay_seconds", Help: "Time from a slot to the creation of its run, jitter and waits for other runs included.",
			Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 3600},
		}),
	}
	reg.MustRegister(m.slots, m.delay)
	return m
}

// started counts a slot that got its run. One of a backfill is not late, however long ago it was.
func (m *Metrics) started(delay time.Duration, backfilled bool) {
	m.slots.WithLabelValues("Started").Inc()
	if !backfilled {
		m.delay.Observe(max(delay.Seconds(), 0))
	}
}

func (m *Metrics) skipped(reason v1alpha1.SlotReason, count int64) {
	m.slots.WithLabelValues(string(reason)).Add(float64(count))
}
