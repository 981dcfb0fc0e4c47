// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/syncopate-dev/syncopate/internal/secretdir"
)

// Files are what a client reads again for each connection, so that a certificate or a password may
// be rotated while it runs.
type Files struct {
	TLS bool   // implied by the others that are about TLS
	CA  string // PEM of the authorities that Redis is verified with; empty: those of the system
	// Cert and Key are PEM files of a client certificate; both or none.
	Cert, Key string
	// AuthDir is a mounted Secret with the entries username, password, sentinelUsername and
	// sentinelPassword. Each goes before what ClientConfig has, and may be missing. Those for the
	// sentinels are read once: the library takes them at its start.
	AuthDir string
}

// Errors of Files. Not worth a retry.
var (
	errNoCertificate = errors.New("no PEM certificate in it")
	errHalfPair      = errors.New("a client certificate takes a file of the certificate and one of its key")
)

// Apply sets what the files give in a configuration. It fails if one of them cannot be used now.
func (f Files) Apply(c *ClientConfig) error {
	if f.TLS || f.CA != "" || f.Cert != "" || f.Key != "" {
		if _, err := f.tls(); err != nil {
			return err
		}
		c.TLS = f.tls
	}
	if f.AuthDir == "" {
		return nil
	}
	if err := secretdir.Check(f.AuthDir); err != nil {
		return err
	}
	if _, _, err := f.login(); err != nil {
		return err
	}
	c.Login = f.login
	user, err := secretdir.Read(f.AuthDir, "sentinelUsername")
	if err != nil {
		return err
	}
	password, err := secretdir.Read(f.AuthDir, "sentinelPassword")
	c.SentinelUsername, c.SentinelPassword = cmp.Or(user, c.SentinelUsername), cmp.Or(password, c.SentinelPassword)
	return err
}

func (f Files) login() (username, password string, err error) {
	if username, err = secretdir.Read(f.AuthDir, "username"); err != nil {
		return "", "", err
	}
	password, err = secretdir.Read(f.AuthDir, "password")
	return username, password, err
}

func (f Files) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("read CA certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA certificates %s: %w", f.CA, errNoCertificate)
		}
	}
	if f.Cert == "" && f.Key == "" {
		return config, nil
	}
	if f.Cert == "" || f.Key == "" {
		return nil, errHalfPair
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read client certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// dialTLS connects with what the files hold now.
func (c ClientConfig) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	config, err := c.TLS()
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: callTimeout}, Config: config}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return watched(conn), nil
}

// credentials is Login for go-redis.
func (c ClientConfig) credentials(context.Context) (username, password string, err error) {
	username, password, err = c.Login()
	return cmp.Or(username, c.Username), cmp.Or(password, c.Password), err
}
