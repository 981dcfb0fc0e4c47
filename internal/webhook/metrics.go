// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcomes of requests, as labels. Beside not_asked, duplicate, malformed and invalid they are
// those of syncopate_admission_decision_seconds.
const (
	outcomeNotAsked    = "not_asked"
	outcomeAdmitted    = "admitted"
	outcomeRejected    = "rejected"
	outcomeDuplicate   = "duplicate" // another run has the idempotency key
	outcomeBusy        = "busy"
	outcomeUnavailable = "unavailable"
	outcomeRebuilding  = "rebuilding"
	outcomeMalformed   = "malformed"
	outcomeInvalid     = "invalid"
)

// metrics is what the quota, which has the times of decisions (surface webhook), does not see.
type metrics struct {
	answers *prometheus.CounterVec
	expiry  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		answers: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Namespace: "syncopate", Name: "webhook_answers_total",
			Help: "Creations of runs that the webhook answered: let through without asking the gate (not_asked), or as the gate decided.",
		}, []string{"outcome"}),
		expiry: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Namespace: "syncopate", Name: "webhook_certificate_expiry_timestamp_seconds",
			Help: "When the certificate ends that the webhook serves with, in seconds since 1970; 0: it has none yet.",
		}),
	}
	for _, outcome := range []string{
		outcomeNotAsked, outcomeAdmitted, outcomeRejected, outcomeDuplicate, outcomeBusy, outcomeUnavailable, outcomeRebuilding, outcomeMalformed,
		outcomeInvalid,
	} {
		m.answers.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) answered(outcome string) { m.answers.WithLabelValues(outcome).Inc() }

func (m *metrics) serves(until time.Time) { m.expiry.Set(float64(until.Unix())) }
