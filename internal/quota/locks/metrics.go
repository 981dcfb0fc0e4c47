// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// maxSemaphores bounds the names of semaphores in labels. Those that come later are "other".
const maxSemaphores = 200

// Metrics counts what becomes of locks. Its labels are words of this package, and names of
// semaphores.
type Metrics struct {
	answers *prometheus.CounterVec
	rebuild *prometheus.CounterVec
	leaked  prometheus.Counter
	missing prometheus.Counter
	held    prometheus.Gauge
	waiting prometheus.Gauge
	oldest  *prometheus.GaugeVec
	times   *prometheus.HistogramVec

	mu    sync.Mutex
	names map[string]bool // of semaphores, in labels
}

// NewMetrics registers the metrics; with a nil registry they count all the same.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	drift := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "syncopate_locks_drift_total", Help: "Differences between what Redis has of locks across runs and the runs, which a resync repaired, by kind.",
	}, []string{"kind"})
	m := &Metrics{
		names: map[string]bool{},
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_locks_answers_total", Help: "Questions for locks across runs, by what became of them.",
		}, []string{"state"}),
		rebuild: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_locks_rebuilds_total", Help: "How often locks across runs were counted anew from the runs, by outcome.",
		}, []string{"outcome"}),
		leaked: drift.WithLabelValues("leaked"), missing: drift.WithLabelValues("missing"),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "syncopate_locks_held", Help: "Runs and steps that hold locks across runs, as of the last resync; of the replica that makes resyncs.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "syncopate_locks_waiting", Help: "Runs and steps that wait for locks across runs, as of the last resync; of the replica that makes resyncs.",
		}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_locks_oldest_contended_hold_seconds",
			Help: "Age of the oldest hold of a lock across runs for which somebody waits, as of the last resync, by semaphore (\"mutex\": all mutexes); of the replica that makes resyncs.",
		}, []string{"semaphore"}),
		times: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "syncopate_locks_hold_seconds", Help: "How long locks across runs were held, until the end of their holders, by semaphore (\"mutex\": all mutexes).",
			Buckets: []float64{0.1, 1, 10, 60, 300, 900, 3600, 14_400, 86_400},
		}, []string{"semaphore"}),
	}
	if registry != nil {
		registry.MustRegister(m.answers, m.rebuild, drift, m.held, m.waiting, m.oldest, m.times)
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

// ended counts how long locks were held.
func (m *Metrics) ended(all []store.Ended) {
	for _, e := range all {
		m.times.WithLabelValues(m.label(e.Lock)).Observe(e.Held.Seconds())
	}
}

// contended sets the ages of the oldest holds for which somebody waits, by lock.
func (m *Metrics) contended(ages map[string]time.Duration) {
	oldest := map[string]time.Duration{}
	for lock, age := range ages {
		label := m.label(lock)
		oldest[label] = max(oldest[label], age)
	}
	m.oldest.Reset()
	for label, age := range oldest {
		m.oldest.WithLabelValues(label).Set(age.Seconds())
	}
}

// forget says that nothing is known here any more: another replica makes the resyncs.
func (m *Metrics) forget() {
	m.held.Set(0)
	m.waiting.Set(0)
	m.oldest.Reset()
}

// label is that of a lock: users name mutexes, and there are as many as they like; semaphores
// are the platform team's.
func (m *Metrics) label(lock string) string {
	if strings.HasPrefix(lock, mutexPrefix) {
		return "mutex"
	}
	name := semaphoreOf(lock)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.names[name] && len(m.names) >= maxSemaphores {
		return "other"
	}
	m.names[name] = true
	return name
}
