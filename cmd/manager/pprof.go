// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
)

// pprofOff is the address that switches profiles off, as it does for the metrics endpoint.
const pprofOff = "0"

var errNotLoopback = errors.New("need localhost, 127.0.0.1 or [::1] with a port, or 0")

// checkPprof refuses addresses that others could reach. Profiles need no login and show strings
// of the heap.
func checkPprof(addr string) error {
	if addr == pprofOff || addr == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil || (host != "localhost" && !net.ParseIP(host).IsLoopback()) {
		return fmt.Errorf("--pprof-bind-address %q: %w", addr, errNotLoopback)
	}
	return nil
}
