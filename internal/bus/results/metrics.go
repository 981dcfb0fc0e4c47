package bus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a result, for Metrics.CountResult.
const (
	OutcomeApplied      = "applied"
	OutcomeStale        = "stale"
	OutcomeDuplicate    = "duplicate"
	OutcomeDeadLettered = "dead_lettered" // counted by the bus
	OutcomeRejected     = "rejected"      // counted by the bus: it never reached handle
)

// Labels of the streams that are watched for losses of data.
const (
	labelJobs    = "jobs"
	labelResults = "results"
)

// Metrics are the bus's Prometheus metrics.
type Metrics struct {
	retryDelay    *prometheus.HistogramVec
	redeliveryGap *prometheus.HistogramVec
	// redeliveryAsked has the delays of the same redeliveries as redeliveryGap: the two can be compared. retryDelay also has those
	// that came again elsewhere, or not yet.
	redeliveryAsked *prometheus.HistogramVec
	deadLetters     *prometheus.CounterVec
	results         *prometheus.CounterVec
	dataLosses      *prometheus.CounterVec
	topicsRefused   prometheus.Counter
	fences          prometheus.Counter
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
		dataLosses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_nats_data_losses_total",
			Help: "How often NATS was found to have lost data, by stream: jobs or results.",
		}, []string{"stream"}),
		fences: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "syncopate_job_fences_total",
			Help: "Fence messages stored: each begins a new epoch of an attempt that another process, or an earlier try, may have published.",
		}),
	}
	m.topicsRefused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "syncopate_topics_refused_total",
		Help: "How often a job was not published because its topic would have been one too many.",
	})
	for _, stream := range []string{labelJobs, labelResults} {
		m.dataLosses.WithLabelValues(stream) // there from the start, so that the first loss is an increase
	}
	reg.MustRegister(m.retryDelay, m.redeliveryGap, m.redeliveryAsked, m.deadLetters, m.results, m.dataLosses, m.topicsRefused, m.fences)
	return m
}

// ObserveRetryDelay notes a delay that was granted elsewhere than by Settle: a worker's own wish, which a status remembers.
func (m *Metrics) ObserveRetryDelay(class string, d time.Duration) {
	m.retryDelay.WithLabelValues(class).Observe(d.Seconds())
}

// CountResult counts a result by what became of it. The bus counts OutcomeDeadLettered and OutcomeRejected itself.
func (m *Metrics) CountResult(outcome string) { m.results.WithLabelValues(outcome).Inc() }
