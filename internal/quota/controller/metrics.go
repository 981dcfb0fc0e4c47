// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcomes of a rebuild, as labels.
const (
	outcomeDone   = "done"
	outcomeFailed = "failed"
)

// Metrics counts rebuilds. Drift is counted by admission.Metrics.
type Metrics struct {
	rebuilds *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{rebuilds: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Namespace: "syncopate", Name: "admission_rebuilds_total",
		Help: "Rebuilds of the slots of tenants after Redis lost them: done, or failed and tried again.",
	}, []string{"outcome"})}
	for _, o := range []string{outcomeDone, outcomeFailed} {
		m.rebuilds.WithLabelValues(o)
	}
	return m
}
