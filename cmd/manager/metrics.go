// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"sync"
	"time"

	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/syncopate-dev/syncopate/internal/scrape"
	"github.com/syncopate-dev/syncopate/internal/webhook/certs"
)

// metrics is how metrics are served: by TLS and to who may get /metrics, unless asked otherwise.
func (o *options) metrics() metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.metricsAddr}
	if o.metricsSecure {
		m.SecureServing, m.CertDir, m.FilterProvider = true, o.metricsCertDir, scrape.Filter
		m.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }} // one client now and then has no use for HTTP/2 and its floods
		if o.metricsCertDir == "" {
			m.TLSOpts = append(m.TLSOpts, func(c *tls.Config) { c.GetCertificate = selfSigned() })
		}
	}
	return m
}

// selfSigned is a certificate that is made when somebody asks for metrics. Where there is none,
// controller-runtime makes two RSA keys at each start, which is a tenth of a second of a core.
func selfSigned() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	made := sync.OnceValues(func() (*tls.Certificate, error) { return certs.SelfSigned(time.Now(), "localhost", "127.0.0.1") })
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return made() }
}
