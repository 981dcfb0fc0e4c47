// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// mutations: metrics without GetCertificate, which has controller-runtime make RSA keys at each
// start; with it where there is a directory, whose files would never be read.
func TestOptions_MetricsHaveACertificateOfTheirOwnWhereNoneIsGiven(t *testing.T) {
	configured := func(o options) *tls.Config {
		o.metricsSecure = true
		c := &tls.Config{MinVersion: tls.VersionTLS12}
		for _, set := range o.metrics().TLSOpts {
			set(c)
		}
		return c
	}
	if c := configured(options{metricsCertDir: "certs"}); c.GetCertificate != nil {
		t.Error("files would not be read")
	}
	c := configured(options{})
	if c.GetCertificate == nil {
		t.Fatal("no certificate")
	}
	server, client := net.Pipe()
	deadline := time.Now().Add(time.Minute)
	for _, end := range []net.Conn{server, client} {
		if err := end.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
	}
	served := make(chan error, 1)
	go func() { served <- tls.Server(server, c).Handshake() }()
	seen := tls.Client(client, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err := seen.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if cert := seen.ConnectionState().PeerCertificates[0]; cert.VerifyHostname("localhost") != nil || cert.NotAfter.Before(time.Now().Add(300*24*time.Hour)) {
		t.Errorf("certificate of %v until %s", cert.DNSNames, cert.NotAfter)
	}
}
