// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"net"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

func addressPort(tb testing.TB, s *server.Server) int {
	tb.Helper()
	a, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		tb.Fatalf("nats-server listens on %v", s.Addr())
	}
	return a.Port
}
