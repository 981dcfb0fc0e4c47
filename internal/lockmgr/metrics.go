// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/syncopate-dev/syncopate/internal/policynames"
)

// Outcomes of a take, as labels.
const (
	outcomeAcquired = "acquired"
	outcomeBusy     = "busy"
	outcomeError    = "error"
)

// States of leases, as labels.
const (
	stateValid   = "valid"
	stateInvalid = "invalid"
)

// retriesMore is the label of two retries and more.
const retriesMore = "more"

// Metrics counts what happens to run locks. Every label has few values: paths and outcomes are
// constants, classes are those of retries, names of policies are bounded.
type Metrics struct {
	busyRetries    *prometheus.CounterVec
	busyRetryDelay *prometheus.HistogramVec
	wait           *prometheus.HistogramVec
	hold           *prometheus.HistogramVec
	validity       prometheus.Histogram
	acquisitions   *prometheus.CounterVec
	renewals       *prometheus.CounterVec
	abandoned      *prometheus.CounterVec
	unlocked       prometheus.Gauge
	leaseTime      *prometheus.CounterVec
	taken          *prometheus.CounterVec
	handoffs       *prometheus.CounterVec

	names *policynames.Names
}

// NewMetrics registers the metrics with reg; nil registers them nowhere. names are those of
// policies that are in labels.
func NewMetrics(reg prometheus.Registerer, names *policynames.Names) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Namespace: "syncopate", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: "syncopate", Name: name, Help: help, Buckets: buckets}
	}
	// Fine around the usual 500 ms, so that jitter can be told from a fixed delay.
	delays := []float64{0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 1, 1.5, 2, 5, 10, 30, 60, 120}
	short := prometheus.ExponentialBuckets(0.0005, 2, 16) // 0.5 ms to 16 s
	long := prometheus.ExponentialBuckets(0.001, 2.5, 14) // 1 ms to 150 s
	m := &Metrics{
		names: names,
		busyRetries: counter("lock_busy_retries_total",
			"Retries that were scheduled because a lock was busy.", "path", "class", "policy"),
		busyRetryDelay: promauto.With(reg).NewHistogramVec(histogram("lock_busy_retry_delay_seconds",
			"Delay of retries that were scheduled because a lock was busy.", delays), []string{"path", "mode"}),
		wait: promauto.With(reg).NewHistogramVec(histogram("run_lock_wait_seconds",
			"How long a run lock that was taken had been wanted; how long a try that failed took.", short), []string{"path", "policy", "outcome"}),
		hold: promauto.With(reg).NewHistogramVec(histogram("run_lock_hold_seconds",
			"How long run locks were in use, without lingering.", long), []string{"path", "policy", "outcome"}),
		validity: promauto.With(reg).NewHistogram(histogram("run_lock_validity_remaining_seconds",
			"How much validity was left when the use of a run lock ended.", []float64{0, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 300, 3600})),
		acquisitions: counter("run_lock_acquisitions_total",
			"Tries to take a run lock that went to Redis.", "outcome"),
		renewals: counter("run_lock_renewals_total",
			"Renewals of run locks.", "outcome", "policy"),
		abandoned: counter("run_lock_abandoned_total",
			"Run locks that were lost while work was done under them.", "reason", "policy", "path"),
		unlocked: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Namespace: "syncopate", Name: "run_locks_unlocked",
			Help: "Runs that are worked on without their lock now, because it could not be renewed and the policy says Continue.",
		}),
		leaseTime: counter("run_lock_lease_seconds_total",
			"Time in which runs were worked on under a lease, by whether it was valid, or had lost one and wanted it back (invalid).", "state", "policy"),
		taken: counter("locks_taken_total",
			"Locks that were had, by how often they had been tried again before: 0, 1 or more.", "path", "policy", "retries"),
		handoffs: counter("run_lock_handoffs_total",
			"Run locks that went to somebody who waited in line: in the same process (local), from another (remote), or in vain (unused).", "kind"),
	}
	names.Drop(m.busyRetries, m.wait, m.hold, m.renewals, m.abandoned, m.leaseTime, m.taken)
	return m
}

// BusyRetry counts a retry after delay because of a busy lock. path says who retries (reconcile,
// result, admission), class is that of the retry (lock_busy), policy is the name of the LockPolicy,
// fixed says that delay has no jitter.
func (m *Metrics) BusyRetry(path, class, policy string, fixed bool, delay time.Duration) {
	mode := "jittered"
	if fixed {
		mode = "fixed"
	}
	m.busyRetries.WithLabelValues(path, class, m.names.Label(policy)).Inc()
	m.busyRetryDelay.WithLabelValues(path, mode).Observe(delay.Seconds())
}

// Taken counts a lock that was had after so many retries. path and policy are as in BusyRetry.
func (m *Metrics) Taken(path, policy string, retries int) {
	label := retriesMore
	if retries <= 1 {
		label = strconv.Itoa(max(0, retries))
	}
	m.taken.WithLabelValues(path, m.names.Label(policy), label).Inc()
}

// Leaseless counts time in which a run that lost its lease wanted a new one.
func (m *Metrics) Leaseless(policy string, d time.Duration) {
	m.leaseTime.WithLabelValues(stateInvalid, m.names.Label(policy)).Add(max(0, d).Seconds())
}

// leased counts time of a lease in use.
func (m *Metrics) leased(r Request, valid, invalid time.Duration) {
	m.leaseTime.WithLabelValues(stateValid, m.names.Label(r.PolicyName)).Add(valid.Seconds())
	if invalid > 0 {
		m.Leaseless(r.PolicyName, invalid)
	}
}

// had counts a lock that somebody had wanted.
func (m *Metrics) had(r Request, now time.Time) {
	m.Taken(r.Path, r.PolicyName, r.Retries)
	m.waited(r, outcomeAcquired, now.Sub(r.Since))
}

// failed counts a try that went to Redis, and did not get the lock.
func (m *Metrics) failed(r Request, outcome string, took time.Duration) {
	m.acquisitions.WithLabelValues(outcome).Inc()
	m.waited(r, outcome, took)
}

func (m *Metrics) waited(r Request, outcome string, took time.Duration) {
	m.wait.WithLabelValues(r.Path, m.names.Label(r.PolicyName), outcome).Observe(took.Seconds())
}

func (m *Metrics) used(r Request, lost bool, held, left time.Duration) {
	outcome := "released"
	if lost {
		outcome = "lost"
	}
	m.hold.WithLabelValues(r.Path, m.names.Label(r.PolicyName), outcome).Observe(held.Seconds())
	m.validity.Observe(max(0, left).Seconds())
}

// renewed counts a renewal, or a take in its place.
func (m *Metrics) renewed(r Request, outcome string) {
	m.renewals.WithLabelValues(outcome, m.names.Label(r.PolicyName)).Inc()
}

// lost counts a lock that was lost in use.
func (m *Metrics) lost(r Request, reason string) {
	m.abandoned.WithLabelValues(reason, m.names.Label(r.PolicyName), r.Path).Inc()
}

// noteUnlocked keeps count of the holds that go on without the lock.
func (m *Metrics) noteUnlocked(was, is bool) {
	switch {
	case is && !was:
		m.unlocked.Inc()
	case was && !is:
		m.unlocked.Dec()
	}
}
