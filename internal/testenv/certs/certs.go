// SPDX-License-Identifier: Apache-2.0

// Package certs makes certificates for the servers and clients of tests, in files, as a Secret is
// mounted: an authority signs, and what it signed may expire and be replaced while it is in use.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// Files are those of one certificate.
type Files struct {
	CA, Cert, Key string

	names []string // of hosts, beside localhost
}

// NewAuthority makes an authority of its own.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: "authority of a test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Issue writes a certificate for servers and clients on this machine, and hosts of these names,
// into a directory of its own. It ends after valid.
func (a *Authority) Issue(valid time.Duration, names ...string) *Files {
	a.tb.Helper()
	dir := a.tb.TempDir()
	f := &Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), names: names}
	a.Renew(f, valid)
	return f
}

// Renew replaces the files by a new certificate, each at once. trusted are other authorities whose
// certificates are to be accepted beside those of this one.
func (a *Authority) Renew(f *Files, valid time.Duration, trusted ...*Authority) {
	a.tb.Helper()
	key := newKey(a.tb)
	template := &x509.Certificate{
		SerialNumber: serial(a.tb), Subject: pkix.Name{CommonName: "part"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    append([]string{"localhost"}, f.names...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	a.Trust(f, trusted...)
	a.replace(f.Key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	a.replace(f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Trust replaces the file of authorities alone: this one, and the others behind it. The certificate
// stays as it is.
func (a *Authority) Trust(f *Files, others ...*Authority) {
	a.tb.Helper()
	cas := a.pem
	for _, other := range others {
		cas = append(slices.Clip(cas), other.pem...)
	}
	a.replace(f.CA, cas)
}

func (a *Authority) replace(path string, text []byte) {
	a.tb.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		a.tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		a.tb.Fatal(err)
	}
}

// Client is a configuration with these files as they are now.
func (f *Files) Client(tb testing.TB) *tls.Config {
	tb.Helper()
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	text, err := os.ReadFile(f.CA)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		tb.Fatalf("read %s: %v", f.CA, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
