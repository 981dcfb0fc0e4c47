// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/audit/stores"
)

// Metrics are the figures of the last audit.
type Metrics struct {
	findings *prometheus.GaugeVec
	audits   *prometheus.CounterVec
}

// NewMetrics registers the metrics; with a nil registry they count all the same.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		findings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_audit_findings", Help: "Differences between API server, Redis and NATS that the last audit found, by kind.",
		}, []string{"kind"}),
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_audits_total", Help: "Audits, by whether all stores could be read: whole or partly.",
		}, []string{"outcome"}),
	}
	m.forget()
	if registry != nil {
		registry.MustRegister(m.findings, m.audits)
	}
	return m
}

func (m *Metrics) tell(r stores.Report) {
	for _, k := range audit.Kinds() {
		m.findings.WithLabelValues(string(k)).Set(float64(len(ofKind(r.Findings, k))))
	}
	outcome := "whole"
	if len(r.Unread) > 0 {
		outcome = "partly"
	}
	m.audits.WithLabelValues(outcome).Inc()
}

// forget says of all kinds that nothing is known here any more: another replica audits.
func (m *Metrics) forget() {
	for _, k := range audit.Kinds() {
		m.findings.WithLabelValues(string(k)).Set(0)
	}
}
