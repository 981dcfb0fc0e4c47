// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Labels of the streams. The operator stores into all but results.
const (
	labelJobs        = "jobs"
	labelResults     = "results"
	labelDeadLetters = "deadletters"
	labelControl     = "control"
	labelPayloads    = "payloads"
)

// Metrics are the Prometheus metrics of the connection.
type Metrics struct {
	dataLosses *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	bytes      *prometheus.GaugeVec
	limits     *prometheus.GaugeVec

	mu   sync.Mutex
	seen map[string]time.Time // by label: when a stream was measured last
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{seen: map[string]time.Time{}, dataLosses: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "syncopate_nats_data_losses_total",
		Help: "How often NATS was found to have lost data, by stream: jobs, results, deadletters, control, payloads.",
	}, []string{"stream"})}
	for _, stream := range []string{labelJobs, labelResults, labelDeadLetters, labelControl, labelPayloads} {
		m.dataLosses.WithLabelValues(stream) // there from the start, so that the first loss is an increase
	}
	m.refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "syncopate_nats_refusals_total",
		Help: "What NATS refused to store because a stream, the account or the server is full, by stream: jobs, deadletters, control, payloads.",
	}, []string{"stream"})
	for _, stream := range []string{labelJobs, labelDeadLetters, labelControl, labelPayloads} {
		m.refusals.WithLabelValues(stream) // likewise
	}
	m.bytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "syncopate_nats_stream_bytes",
		Help: "What a stream holds, by stream: jobs, results, deadletters, control, payloads. As of the last look, every ten seconds; gone a minute after the last that succeeded.",
	}, []string{"stream"})
	m.limits = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "syncopate_nats_stream_limit_bytes",
		Help: "What a stream may hold. Not there for a stream without a limit.",
	}, []string{"stream"})
	reg.MustRegister(m.dataLosses, m.refusals, m.bytes, m.limits)
	return m
}

// measure notes what a stream holds, and may hold. Of one that has no leader nobody knows it, and
// it takes nothing: it counts as one that cannot be looked at.
func measure(c *Conn, info *jetstream.StreamInfo) {
	if leaderless(info) {
		return
	}
	label, m := labelOf(c.Names, info.Config.Name), c.config.Metrics
	m.mu.Lock()
	m.seen[label] = c.Clock.Now()
	m.mu.Unlock()
	m.bytes.WithLabelValues(label).Set(float64(info.State.Bytes))
	if info.Config.MaxBytes <= 0 {
		m.limits.DeleteLabelValues(label)
		return
	}
	m.limits.WithLabelValues(label).Set(float64(info.Config.MaxBytes))
}

// knownFor is how long what a stream held is shown though it cannot be looked at: one look that
// fails would have alerts begin their wait anew.
const knownFor = time.Minute

// unmeasured forgets what a stream held that is not there.
func unmeasured(c *Conn, name string) { c.config.Metrics.forget(labelOf(c.Names, name)) }

// forget forgets what a stream held.
func (m *Metrics) forget(label string) {
	m.bytes.DeleteLabelValues(label)
	m.limits.DeleteLabelValues(label)
}

// forgetOld forgets what streams held that could not be looked at for a while.
func forgetOld(c *Conn) {
	m := c.config.Metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	for label, at := range m.seen {
		if c.Clock.Since(at) >= knownFor {
			delete(m.seen, label)
			m.forget(label)
		}
	}
}

// labelOf is the label of a stream.
func labelOf(names protocol.Names, stream string) string {
	switch stream {
	case names.ResultsStream():
		return labelResults
	case names.DeadLettersStream():
		return labelDeadLetters
	case names.ControlStream():
		return labelControl
	case names.PayloadsStream():
		return labelPayloads
	default:
		return labelJobs
	}
}
