// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// The variables of the environment that say how to reach the collector: OpenTelemetry's own names.
const (
	envHeaders  = "OTEL_EXPORTER_OTLP_HEADERS"
	envCA       = "OTEL_EXPORTER_OTLP_CERTIFICATE"
	envCert     = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
	envKey      = "OTEL_EXPORTER_OTLP_CLIENT_KEY"
	maxHeaders  = 16
	tracesPath  = "/v1/traces"
	idleTimeout = 90 * time.Second
)

// Target is a collector, and what it takes to reach it.
type Target struct {
	url     string
	headers http.Header
	client  *http.Client
}

// NewTarget checks an address such as https://collector:4318, and reads the rest from the
// environment: credentials are in no flag.
func NewTarget(endpoint string, getenv func(string) string) (*Target, error) {
	address, err := traceURL(endpoint)
	if err != nil {
		return nil, err
	}
	headers, err := parseHeaders(getenv(envHeaders))
	if err != nil {
		return nil, fmt.Errorf("$%s: %w", envHeaders, err)
	}
	secure, err := tlsConfig(getenv(envCA), getenv(envCert), getenv(envKey))
	if err != nil {
		return nil, err
	}
	return &Target{url: address, headers: headers, client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, MaxIdleConns: 1, IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true,
		},
		// A redirect would take the headers, and so the credentials, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func traceURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return "", errors.New("need an address such as https://collector:4318")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("an address has no user, query or fragment: credentials are in $%s", envHeaders)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// parseHeaders reads "name=value,name=value", with values as in URLs. Its errors have no values.
func parseHeaders(text string) (http.Header, error) {
	headers := http.Header{}
	if strings.TrimSpace(text) == "" {
		return headers, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !ok || !headerName(name) {
			return nil, fmt.Errorf("pair %d is not name=value", len(headers)+1)
		}
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil || strings.ContainsAny(plain, "\r\n\x00") {
			return nil, fmt.Errorf("the value of %s cannot be a header", name)
		}
		headers.Add(name, plain)
		if len(headers) > maxHeaders {
			return nil, fmt.Errorf("more than %d headers", maxHeaders)
		}
	}
	return headers, nil
}

func headerName(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return name != ""
}

func tlsConfig(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca) // whoever starts the operator names it
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", envCA, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("$%s: no certificate in %s", envCA, ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("need both or none of $%s and $%s", envCert, envKey)
	}
	if cert != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return nil, fmt.Errorf("$%s, $%s: %w", envCert, envKey, err)
		}
		// Read again for each connection: certificates are renewed while the operator runs.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	return c, nil
}
