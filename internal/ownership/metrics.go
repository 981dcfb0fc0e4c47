// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Kinds of hand-overs and outcomes of calls, as labels.
const (
	kindPlanned  = "planned"
	kindTakeover = "takeover"

	outcomeOK       = "ok"
	outcomeGone     = "gone"
	outcomeError    = "error"
	outcomeConflict = "conflict"
)

// Metrics says what this member owns, and how partitions change their owners.
type Metrics struct {
	owned     prometheus.Gauge
	unowned   prometheus.Gauge
	members   prometheus.Gauge
	handovers *prometheus.HistogramVec
	renewals  *prometheus.CounterVec
	writes    *prometheus.CounterVec
	lapses    prometheus.Counter
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return with.NewGauge(prometheus.GaugeOpts{Namespace: "syncopate", Name: name, Help: help})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Namespace: "syncopate", Name: name, Help: help}, []string{"outcome"})
	}
	m := &Metrics{
		owned:   gauge("partitions_owned", "Partitions whose work this replica may do now."),
		unowned: gauge("partitions_unowned", "Partitions without an owner that is live, as this replica sees it; all, while it may act for none itself."),
		members: gauge("ownership_members", "Replicas that may own partitions, as this replica sees it."),
		handovers: with.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "syncopate", Name: "handover_seconds", Buckets: prometheus.ExponentialBuckets(0.002, 2, 14),
			Help: "Time in which partitions were not worked on: planned, from the end of the work until another owner was written; takeover, from the last sign of the old owner to the beginning of the work here.",
		}, []string{"kind"}),
		renewals: counter("member_lease_renewals_total", "Renewals of the Lease of this replica."),
		writes:   counter("ownership_writes_total", "Writes of the owners of partitions."),
		lapses: with.NewCounter(prometheus.CounterOpts{
			Namespace: "syncopate", Name: "ownership_lapses_total",
			Help: "How often this replica gave up all its partitions because it could not renew its Lease or read the owners in time.",
		}),
	}
	for _, kind := range []string{kindPlanned, kindTakeover} { // a rate begins at what was there before: the first one would not be seen
		m.handovers.WithLabelValues(kind)
	}
	return m
}

func (m *Metrics) handedOver(kind string, d time.Duration) {
	m.handovers.WithLabelValues(kind).Observe(max(0, d).Seconds())
}
