// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policynames"
)

// Metrics are the figures of this package and, exported, of its parts;
// docs/architecture.md lists them.
type Metrics struct {
	statusWrites    *prometheus.CounterVec
	fenceRejections *prometheus.CounterVec
	storeFailures   prometheus.Counter
	EventsDropped   *prometheus.CounterVec
	Refusals        prometheus.Counter
	tooLarge        *prometheus.CounterVec
	Recoveries      *prometheus.CounterVec
	AnswersAsked    *prometheus.CounterVec
	ResultsPerWrite prometheus.Histogram
	resultLatency   *prometheus.HistogramVec
	TakeOver        prometheus.Histogram
	DispatchLatency prometheus.Histogram
	decisionsCut    prometheus.Counter
	decisionsAhead  prometheus.Counter
	writes          *prometheus.HistogramVec
	names           *policynames.Names
}

// NewMetrics makes and registers the metrics. names are those of policies that are in labels.
func NewMetrics(reg prometheus.Registerer, names *policynames.Names) *Metrics {
	latency := prometheus.ExponentialBuckets(0.001, 2, 16) // 1 ms to 33 s
	m := &Metrics{
		names: names,
		statusWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_status_writes_total", Help: "Status writes of runs, by outcome: accepted, outdated (another wrote, or the run is gone), refused (answered with another error), or unanswered.",
		}, []string{"outcome"}),
		fenceRejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_fence_rejections_total", Help: "What was refused as stale, by what refused it: status writes by resource_version or fence_rule, dispatches by nats_fence.",
		}, []string{"by"}),
		storeFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_lock_store_failures_total", Help: "Passes that could not take the run lock because Redis could not be used.",
		}),
		EventsDropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_events_dropped_total",
			Help: "Events left out, by cause: full, because too many waited to be written; deleted, because their run was; refused by the API server. Status tells what they would have.",
		}, []string{"cause"}),
		Refusals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_inbox_refusals_total", Help: "Results that found no room to wait in memory, and went back to NATS.",
		}),
		tooLarge: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_status_too_large_total",
			Help: "Status writes refused for the size of the object, which then ends in a smaller form, by the form refused: full, short or bare.",
		}, []string{"form"}),
		Recoveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_job_recoveries_total", Help: "Attempts in status that were looked up in NATS before publishing, by outcome.",
		}, []string{"outcome"}),
		AnswersAsked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_timeout_questions_total",
			Help: "Questions for stored results because a time-out was due, by outcome: none, found, partly or failed.",
		}, []string{"outcome"}),
		ResultsPerWrite: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "syncopate_results_per_write", Help: "Results applied by one status write.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		TakeOver: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "syncopate_take_over_seconds",
			Help:    "Time from the moment at which this process led to that at which it looked after a run of an earlier leader.",
			Buckets: []float64{.1, .5, 1, 2, 5, 10, 15, 30, 45, 60, 90, 120, 300, 600},
		}),
		DispatchLatency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "syncopate_step_dispatch_latency_seconds", Help: "Time from the decision to dispatch a step to the PubAck of its job.", Buckets: latency,
		}),
	}
	m.addLatency(latency)
	m.addDecisions()
	for _, outcome := range outcomes {
		m.statusWrites.WithLabelValues(outcome) // from 0 on: alerts are about their increase
	}
	for _, form := range forms {
		m.tooLarge.WithLabelValues(form) // from 0 on: an alert is about its increase
	}
	reg.MustRegister(m.decisionsCut, m.decisionsAhead, m.statusWrites, m.fenceRejections, m.storeFailures, m.tooLarge, m.Recoveries, m.EventsDropped, m.AnswersAsked, m.Refusals,
		m.ResultsPerWrite, m.resultLatency, m.TakeOver, m.DispatchLatency, m.writes)
	return m
}

// addLatency makes the metric of results, of which each policy has its own.
func (m *Metrics) addLatency(buckets []float64) {
	m.resultLatency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "syncopate_job_result_latency_seconds", Help: "Time from when NATS stored a result to its status write, by LockPolicy.", Buckets: buckets,
	}, []string{"policy"})
	m.names.Drop(m.resultLatency)
}

// Applied counts the latency of a result that was applied under a policy, by name.
func (m *Metrics) Applied(policy string, latency time.Duration) {
	m.resultLatency.WithLabelValues(m.names.Label(policy)).Observe(latency.Seconds())
}

// addDecisions makes the metrics of decisions, and of what runs write.
func (m *Metrics) addDecisions() {
	m.decisionsCut = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "syncopate_decisions_cut_total", Help: "Status writes that leave steps or items to the next one, because expressions took what a pass may.",
	})
	m.decisionsAhead = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "syncopate_decisions_ahead_total", Help: "Decisions that were carried out before their status write (checkpoint mode Coalesced).",
	})
	m.writes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "syncopate_run_writes", Help: "Writes to the API server about one run, observed at its end, by kind: status, event or child.",
		Buckets: []float64{0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 300, 1000},
	}, []string{"kind"})
}

// ended observes, once a run has ended, what it cost the API server. Child runs are those of its
// status, also if another process created them.
func (m *Metrics) ended(run *v1alpha1.WorkflowRun, mem *memory) {
	if !lifecycle.Finished(run) {
		return
	}
	m.writes.WithLabelValues("status").Observe(float64(mem.statusWrites))
	m.writes.WithLabelValues("event").Observe(float64(mem.events))
	children := 0
	for i := range run.Status.Steps {
		if run.Status.Steps[i].ChildRun != nil {
			children++
		}
	}
	m.writes.WithLabelValues("child").Observe(float64(children))
}
