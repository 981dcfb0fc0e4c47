// SPDX-License-Identifier: Apache-2.0

package results

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
)

func phaseOf(run *v1alpha1.WorkflowRun) string {
	if run.Status == nil || run.Status.Phase == "" {
		return string(v1alpha1.RunPending)
	}
	return string(run.Status.Phase)
}

// PhaseCounts exports the number of runs by phase, and of those that need a newer operator, counted
// when it is asked for. Each replica counts those that it drives.
type PhaseCounts struct {
	desc   *prometheus.Desc
	newer  *prometheus.Desc
	index  *Index
	drives func(types.UID) bool
}

// NewPhaseCounts makes the collector.
func NewPhaseCounts(index *Index, drives func(types.UID) bool) *PhaseCounts {
	return &PhaseCounts{
		desc:   prometheus.NewDesc("syncopate_runs", "Runs that this replica drives, by phase.", []string{"phase"}, nil),
		newer:  prometheus.NewDesc("syncopate_runs_need_newer", "Runs of this replica that are left alone, because a newer operator wrote them.", nil, nil),
		index:  index,
		drives: drives,
	}
}

// Describe implements prometheus.Collector.
func (c *PhaseCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.desc
	ch <- c.newer
}

// Collect implements prometheus.Collector.
func (c *PhaseCounts) Collect(ch chan<- prometheus.Metric) {
	phases, newer := c.index.Count(c.drives)
	for phase, n := range phases {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), phase)
	}
	ch <- prometheus.MustNewConstMetric(c.newer, prometheus.GaugeValue, float64(newer))
}

// WaitingResults exports what waits to be applied, counted when it is asked for: here, and given
// back to NATS.
type WaitingResults struct {
	router *Router
	parked func() map[string]int

	results, bytes, limit, oldest, given *prometheus.Desc
}

// NewWaitingResults makes the collector; parked counts what was given back to NATS.
func NewWaitingResults(r *Router, parked func() map[string]int) *WaitingResults {
	desc := prometheus.NewDesc
	return &WaitingResults{
		router: r, parked: parked,
		results: desc("syncopate_inbox_results", "Results that wait in memory for their run's next write.", nil, nil),
		bytes:   desc("syncopate_inbox_bytes", "What results that wait hold of the memory.", nil, nil),
		limit:   desc("syncopate_inbox_limit_bytes", "What they may hold of it.", nil, nil),
		oldest:  desc("syncopate_inbox_oldest_seconds", "Time since NATS stored the oldest result that waits in memory; 0: none waits.", nil, nil),
		given:   desc("syncopate_results_parked", "Results given back to NATS that have not come again, by class of the wait, as far as they are remembered.", []string{"class"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *WaitingResults) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.results, c.bytes, c.limit, c.oldest, c.given} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *WaitingResults) Collect(ch chan<- prometheus.Metric) {
	known, orphans := c.router.Inbox.Backlog(), c.router.orphans.parked.Backlog()
	oldest := 0.0
	if at := pacing.Earliest(known.Oldest, orphans.Oldest); !at.IsZero() {
		oldest = max(0, c.router.Clock.Since(at).Seconds())
	}
	for desc, v := range map[*prometheus.Desc]float64{
		c.results: float64(known.Results + orphans.Results), c.bytes: float64(known.Bytes + orphans.Bytes),
		c.limit: float64(known.Limit + orphans.Limit), c.oldest: oldest,
	} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	for class, n := range c.parked() {
		ch <- prometheus.MustNewConstMetric(c.given, prometheus.GaugeValue, float64(n), class)
	}
}
