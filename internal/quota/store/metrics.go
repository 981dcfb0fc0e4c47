// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcomes of a decision, as labels.
const (
	outcomeAdmitted    = "admitted"
	outcomeWaiting     = "waiting"
	outcomeRejected    = "rejected"
	outcomeBusy        = "busy"
	outcomeUnavailable = "unavailable"
	outcomeRebuilding  = "rebuilding"
	outcomeAcquired    = "acquired" // the lock of strategy Lock
)

// defaultTenants is how many tenants have labels of their own.
const defaultTenants = 50

// longestShare is the part of the gauges, one in so many, that the longest lines of all have.
const longestShare = 5

// otherTenants is the label of all others.
const otherTenants = "other"

// Metrics counts decisions. Labels are bounded: policies are cluster-scoped objects, the first
// tenants that come have labels of their own, and the others share one. Gauges cannot be shared: so
// those have them that have the longest lines, or wait since they had.
type Metrics struct {
	decisions *prometheus.HistogramVec
	lockWait  *prometheus.HistogramVec
	slots     *prometheus.GaugeVec
	waiting   *prometheus.GaugeVec
	drift     *prometheus.CounterVec

	most    int
	mu      sync.Mutex
	tenants map[string]bool  // those with labels of their own
	shown   map[Key]standing // those with gauges
}

// standing is how many runs of a tenant have slots, and how many wait.
type standing struct{ slots, waiting int }

// NewMetrics registers the metrics with reg; nil registers them nowhere. tenants is how many have
// labels of their own; 0: 50.
func NewMetrics(reg prometheus.Registerer, tenants int) *Metrics {
	if tenants <= 0 {
		tenants = defaultTenants
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "syncopate", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), // 0.5 ms to 4 s
		}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Namespace: "syncopate", Name: name, Help: help}, []string{"tenant", "policy"})
	}
	m := &Metrics{
		decisions: histogram("admission_decision_seconds",
			"How long it took to decide on the admission of a run.", "tenant", "strategy", "surface", "outcome"),
		lockWait: histogram("admission_lock_wait_seconds",
			"How long the admission lock of a tenant was waited for; strategy Lock only.", "tenant", "surface", "outcome"),
		slots:   gauge("admission_slots", "Admitted runs of each tenant that has any, or one that waits, as of the last resync; of the replica that makes resyncs."),
		waiting: gauge("admission_queue_length", "Runs in line of each tenant that has any, or an admitted one, as of the last resync; of the replica that makes resyncs."),
		drift: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Namespace: "syncopate", Name: "admission_drift_total",
			Help: "Differences between slots and runs that were repaired: slots of no run (leaked), runs without a slot (missing), places in line of no run (stale_place).",
		}, []string{"kind"}),
		most: tenants, tenants: map[string]bool{},
	}
	for _, kind := range []string{driftLeaked, driftMissing, driftStalePlace} {
		m.drift.WithLabelValues(kind)
	}
	return m
}

// label is the tenant's name, or that of all others.
func (m *Metrics) label(tenant string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tenants[tenant] {
		if len(m.tenants) >= m.most {
			return otherTenants
		}
		m.tenants[tenant] = true
	}
	return tenant
}

func (m *Metrics) decided(tenant, strategy, surface, outcome string, took time.Duration) {
	m.decisions.WithLabelValues(m.label(tenant), strategy, surface, outcome).Observe(took.Seconds())
}

func (m *Metrics) lockWaited(tenant, surface, outcome string, took time.Duration) {
	m.lockWait.WithLabelValues(m.label(tenant), surface, outcome).Observe(took.Seconds())
}

// show sets the gauges, and ends those of tenants that have nothing any more, or make room for
// others. A scrape finds each of the others at all times: one that is gone for a moment would end
// an alert.
func (m *Metrics) show(now map[Key]standing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shown, first := map[Key]standing{}, m.first(now)
	for k, s := range now {
		if first[k.Tenant] {
			shown[k] = s
			m.slots.WithLabelValues(k.Tenant, k.Policy).Set(float64(s.slots))
			m.waiting.WithLabelValues(k.Tenant, k.Policy).Set(float64(s.waiting))
		}
	}
	for k := range m.shown {
		if _, is := shown[k]; !is {
			m.slots.DeleteLabelValues(k.Tenant, k.Policy)
			m.waiting.DeleteLabelValues(k.Tenant, k.Policy)
		}
	}
	m.shown = shown
}

// first are the tenants that have gauges: a fifth of them has the longest lines of all. Then come
// those shown before that still wait, since an alert asks for how long, and then the longest lines.
func (m *Metrics) first(now map[Key]standing) map[string]bool {
	before, lines := map[string]int{}, map[string]int{}
	for k := range m.shown {
		before[k.Tenant] = 1
	}
	for k, s := range now {
		lines[k.Tenant] += s.waiting
	}
	all := slices.SortedFunc(maps.Keys(lines), func(a, b string) int {
		return cmp.Or(cmp.Compare(lines[b], lines[a]), cmp.Compare(before[b], before[a]), cmp.Compare(a, b))
	})
	kept := func(tenant string) int { return min(before[tenant], lines[tenant]) }
	longest := min(m.most/longestShare, len(all))
	slices.SortStableFunc(all[longest:], func(a, b string) int { return cmp.Compare(kept(b), kept(a)) })
	first := map[string]bool{}
	for _, tenant := range all[:min(m.most, len(all))] {
		first[tenant] = true
	}
	return first
}

func (m *Metrics) drifted(kind string, n int) { m.drift.WithLabelValues(kind).Add(float64(n)) }

func strategyOf(l Limits) string {
	if l.Lock == nil {
		return "atomic"
	}
	return "lock"
}

func outcomeOf(surface string, a Answer, err error) string {
	switch {
	case is[*BusyError](err):
		return outcomeBusy
	case is[*RebuildingError](err):
		return outcomeRebuilding
	case err != nil:
		return outcomeUnavailable
	case a.Admitted:
		return outcomeAdmitted
	case surface == surfaceWebhook:
		return outcomeRejected
	default:
		return outcomeWaiting
	}
}

func lockOutcomeOf(err error) string {
	switch {
	case is[*BusyError](err):
		return outcomeBusy
	case err != nil:
		return outcomeUnavailable
	default:
		return outcomeAcquired
	}
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
