// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"

	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/syncopate-dev/syncopate/internal/scrape"
)

// metrics is how metrics are served: by TLS and to who may get /metrics, unless asked otherwise.
func (o *options) metrics() metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.metricsAddr}
	if o.metricsSecure {
		m.SecureServing, m.CertDir, m.FilterProvider = true, o.metricsCertDir, scrape.Filter
		m.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }} // one client now and then has no use for HTTP/2 and its floods
	}
	return m
}
