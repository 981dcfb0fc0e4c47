package workflowrun

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
)

// Metrics are the figures of this package; docs/architecture.md lists them.
type Metrics struct {
	statusWrites    *prometheus.CounterVec
	fenceRejections *prometheus.CounterVec
	storeFailures   prometheus.Counter
	eventsDropped   prometheus.Counter
	refusals        prometheus.Counter
	tooLarge        *prometheus.CounterVec
	recoveries      *prometheus.CounterVec
	answersAsked    *prometheus.CounterVec
	resultsPerWrite prometheus.Histogram
	resultLatency   *prometheus.HistogramVec
	takeOver        prometheus.Histogram
	dispatchLatency prometheus.Histogram
	decisionsCut    prometheus.Counter
}

// NewMetrics makes and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	latency := prometheus.ExponentialBuckets(0.001, 2, 16) // 1 ms to 33 s
	m := &Metrics{
		statusWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_status_writes_total", Help: "Status writes of runs, by outcome: accepted or refused.",
		}, []string{"outcome"}),
		fenceRejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_fence_rejections_total", Help: "What was refused as stale, by what refused it: status writes by resource_version or fence_rule, dispatches by nats_fence.",
		}, []string{"by"}),
		storeFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_lock_store_failures_total", Help: "Passes that could not take the run lock because Redis could not be used.",
		}),
		eventsDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_events_dropped_total", Help: "Events left out because too many waited to be written. Status tells what they would have.",
		}),
		refusals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_inbox_refusals_total", Help: "Results that found no room to wait in memory, and went back to NATS.",
		}),
		tooLarge: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_status_too_large_total",
			Help: "Status writes refused for the size of the object, which then ends in a smaller form, by the form refused: full, short or bare.",
		}, []string{"form"}),
		recoveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_job_recoveries_total", Help: "Attempts in status that were looked up in NATS before publishing, by outcome.",
		}, []string{"outcome"}),
		answersAsked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_timeout_questions_total",
			Help: "Questions for stored results because a time-out was due, by outcome: none, found, partly or failed.",
		}, []string{"outcome"}),
		resultsPerWrite: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "syncopate_results_per_write", Help: "Results applied by one status write.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		resultLatency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "syncopate_job_result_latency_seconds", Help: "Time from a result's publication to its status write, by LockPolicy.", Buckets: latency,
		}, []string{"policy"}),
		takeOver: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "syncopate_take_over_seconds",
			Help:    "Time from the moment at which this process led to that at which it looked after a run of an earlier leader.",
			Buckets: []float64{.1, .5, 1, 2, 5, 10, 15, 30, 45, 60, 90, 120, 300, 600},
		}),
		dispatchLatency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "syncopate_step_dispatch_latency_seconds", Help: "Time from the decision to dispatch a step to the PubAck of its job.", Buckets: latency,
		}),
	}
	m.decisionsCut = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "syncopate_decisions_cut_total", Help: "Status writes that leave steps or items to the next one, because expressions took what a pass may.",
	})
	for _, form := range forms {
		m.tooLarge.WithLabelValues(form) // from 0 on: an alert is about its increase
	}
	reg.MustRegister(m.decisionsCut, m.statusWrites, m.fenceRejections, m.storeFailures, m.tooLarge, m.recoveries, m.eventsDropped, m.answersAsked, m.refusals,
		m.resultsPerWrite, m.resultLatency, m.takeOver, m.dispatchLatency)
	return m
}

// applied notes a result that is in status now, and how long that took.
func (m *Metrics) applied(policy string, took time.Duration) {
	m.resultLatency.WithLabelValues(policy).Observe(took.Seconds())
}

func phaseOf(run *v1alpha1.WorkflowRun) string {
	if run.Status == nil || run.Status.Phase == "" {
		return string(v1alpha1.RunPending)
	}
	return string(run.Status.Phase)
}

// phaseCounts exports the number of runs by phase, and of those that need a newer operator, counted when it is asked for.
type phaseCounts struct {
	desc      *prometheus.Desc
	newer     *prometheus.Desc
	directory *directory
}

func newPhaseCounts(d *directory) *phaseCounts {
	return &phaseCounts{
		desc:      prometheus.NewDesc("syncopate_runs", "Runs in the cache, by phase.", []string{"phase"}, nil),
		newer:     prometheus.NewDesc("syncopate_runs_need_newer", "Runs in the cache that are left alone, because a newer operator wrote them.", nil, nil),
		directory: d,
	}
}

// Describe implements prometheus.Collector.
func (c *phaseCounts) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.desc
	ch <- c.newer
}

// Collect implements prometheus.Collector.
func (c *phaseCounts) Collect(ch chan<- prometheus.Metric) {
	for phase, n := range c.directory.countPhases() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), phase)
	}
	ch <- prometheus.MustNewConstMetric(c.newer, prometheus.GaugeValue, float64(c.directory.countNewer()))
}

// waitingResults exports what waits to be applied, counted when it is asked for: here, and given back to NATS.
type waitingResults struct {
	in     *intake
	parked func() map[string]int

	results, bytes, limit, oldest, given *prometheus.Desc
}

func newWaitingResults(in *intake, parked func() map[string]int) *waitingResults {
	desc := prometheus.NewDesc
	return &waitingResults{
		in: in, parked: parked,
		results: desc("syncopate_inbox_results", "Results that wait in memory for their run's next write.", nil, nil),
		bytes:   desc("syncopate_inbox_bytes", "What results that wait hold of the memory.", nil, nil),
		limit:   desc("syncopate_inbox_limit_bytes", "What they may hold of it.", nil, nil),
		oldest:  desc("syncopate_inbox_oldest_seconds", "Time since NATS stored the oldest result that waits in memory; 0: none waits.", nil, nil),
		given:   desc("syncopate_results_parked", "Results given back to NATS that have not come again, by class of the wait, as far as they are remembered.", []string{"class"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *waitingResults) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.results, c.bytes, c.limit, c.oldest, c.given} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *waitingResults) Collect(ch chan<- prometheus.Metric) {
	known, strays := c.in.inbox.backlog(), c.in.strays.parked.backlog()
	oldest := 0.0
	if at := pacing.Earliest(known.oldest, strays.oldest); !at.IsZero() {
		oldest = max(0, c.in.clock.Since(at).Seconds())
	}
	for desc, v := range map[*prometheus.Desc]float64{
		c.results: float64(known.results + strays.results), c.bytes: float64(known.bytes + strays.bytes),
		c.limit: float64(known.limit + strays.limit), c.oldest: oldest,
	} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	for class, n := range c.parked() {
		ch <- prometheus.MustNewConstMetric(c.given, prometheus.GaugeValue, float64(n), class)
	}
}
