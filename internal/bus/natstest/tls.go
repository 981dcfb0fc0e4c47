// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"crypto/tls"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
)

// Verifying has a server speak TLS, and want a certificate of the same authority and a login.
func Verifying(tb testing.TB, files *certs.Files, user, password string) func(*server.Options) {
	tb.Helper()
	c := files.Client(tb)
	c.ClientCAs, c.ClientAuth = c.RootCAs, tls.RequireAndVerifyClientCert
	return func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSConfig, o.Username, o.Password = true, true, c, user, password
	}
}
