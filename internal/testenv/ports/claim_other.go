// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ports

import (
	"net"
	"strconv"
)

// claimOf fails when another process has claimed a port: the one above it, here, where
// names need files.
func claimOf(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+last-first+1)))
}
