// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/audit/stores"
)

// Outcomes of audits.
const (
	whole  = "whole"
	partly = "partly"
)

// maxKeptAudits bounds how often a kind keeps what was found before: for some two hours. By then
// SyncopateAuditIncomplete has told that nobody looks.
const maxKeptAudits = 12

// Metrics are the figures of the last audit.
type Metrics struct {
	findings *prometheus.GaugeVec
	audits   *prometheus.CounterVec
	last     map[audit.Kind]seen // what findings shows
}

// seen is what the last audit that could look found of a kind.
type seen struct {
	findings int
	missed   int // audits since, which could not look
}

// NewMetrics registers the metrics; with a nil registry they count all the same.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		findings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_audit_findings", Help: "Differences between API server, Redis and NATS that the last audit which could look found, by kind.",
		}, []string{"kind"}),
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_audits_total", Help: "Audits, by whether all stores could be read: whole or partly.",
		}, []string{"outcome"}),
		last: map[audit.Kind]seen{},
	}
	for _, outcome := range []string{whole, partly} { // from 0 on, so that the first one is seen as an increase
		m.audits.WithLabelValues(outcome)
	}
	if registry != nil {
		registry.MustRegister(m.findings, m.audits)
	}
	return m
}

// tell keeps what was found of a kind before, where this audit could not look: that a store does
// not answer mends nothing. kept is what it keeps.
func (m *Metrics) tell(r stores.Report) (kept map[audit.Kind]int) {
	kept = map[audit.Kind]int{}
	for _, k := range audit.Kinds() {
		was, known := m.last[k]
		now := seen{findings: len(ofKind(r.Findings, k))}
		if now.findings == 0 && !looked(r, k) {
			now = seen{was.findings, was.missed + 1}
			if !known || now.missed > maxKeptAudits {
				delete(m.last, k)
				m.findings.DeleteLabelValues(string(k))
				continue
			}
			if now.findings > 0 {
				kept[k] = now.findings
			}
		}
		m.last[k] = now
		m.findings.WithLabelValues(string(k)).Set(float64(now.findings))
	}
	outcome := whole
	if len(r.Unread) > 0 {
		outcome = partly
	}
	m.audits.WithLabelValues(outcome).Inc()
	return kept
}

// looked says whether all was read that findings of a kind follow from.
func looked(r stores.Report, k audit.Kind) bool {
	return !slices.ContainsFunc(k.Needs(), func(p audit.Part) bool { _, unread := r.Unread[p]; return unread })
}

// forget says that nothing is known here any more: another replica audits.
func (m *Metrics) forget() {
	m.findings.Reset()
	clear(m.last)
}
