// SPDX-License-Identifier: Apache-2.0

package bus

import "github.com/prometheus/client_golang/prometheus"

// Labels of the streams that are watched for losses of data.
const (
	labelJobs    = "jobs"
	labelResults = "results"
)

// Metrics are the Prometheus metrics of the connection.
type Metrics struct {
	dataLosses *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{dataLosses: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "syncopate_nats_data_losses_total",
		Help: "How often NATS was found to have lost data, by stream: jobs or results.",
	}, []string{"stream"})}
	for _, stream := range []string{labelJobs, labelResults} {
		m.dataLosses.WithLabelValues(stream) // there from the start, so that the first loss is an increase
	}
	reg.MustRegister(m.dataLosses)
	return m
}
