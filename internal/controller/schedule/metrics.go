// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
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

// HeldCounts exports the number of schedules that start no runs, by reason, counted when it is
// asked for. Each replica counts those that it drives.
type HeldCounts struct {
	desc *prometheus.Desc
	list func() ([]v1alpha1.Schedule, error)
	// drives says whether this replica drives a schedule.
	drives func(types.UID) bool
}

// heldPatience bounds the wait for a cache that is not filled yet.
const heldPatience = time.Second

// NewHeldCounts makes the collector. It reads from a cache, until ctx ends.
func NewHeldCounts(ctx context.Context, cache client.Reader, drives func(types.UID) bool) *HeldCounts {
	return &HeldCounts{
		desc: prometheus.NewDesc("syncopate_schedules_held", "Schedules of this replica that start no runs, by the reason for that.", []string{"reason"}, nil),
		list: func() ([]v1alpha1.Schedule, error) {
			ctx, cancel := context.WithTimeout(ctx, heldPatience)
			defer cancel()
			var all v1alpha1.ScheduleList
			err := cache.List(ctx, &all, client.UnsafeDisableDeepCopy)
			return all.Items, err
		},
		drives: drives,
	}
}

// Describe implements prometheus.Collector.
func (c *HeldCounts) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector. It says nothing before the cache is filled, since nobody
// knows then.
func (c *HeldCounts) Collect(ch chan<- prometheus.Metric) {
	all, err := c.list()
	if err != nil {
		return
	}
	held := map[v1alpha1.SlotReason]int{
		v1alpha1.SlotPaused: 0, v1alpha1.SlotInvalidSpec: 0, v1alpha1.SlotTemplateRefused: 0, v1alpha1.SlotSuspended: 0, v1alpha1.SlotStopped: 0,
	}
	for i := range all {
		if why := schedule.StartsNone(&all[i]); why != "" && c.drives(all[i].UID) {
			held[why]++
		}
	}
	for reason, n := range held {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), string(reason))
	}
}
