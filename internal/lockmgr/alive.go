// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// errUnasked is the cause where a connection that nobody uses has something to read.
var errUnasked = errors.New("what nobody asked for came from Redis")

// watchedConn is a connection by TLS that can be asked whether it has ended. Before the library
// takes one from its pool it looks whether the socket has ended, but only where the connection is
// a syscall.Conn, which *tls.Conn is not. So after a restart of Redis it would hand out each dead
// connection once, and as a call is not repeated, each would be one that fails.
type watchedConn struct {
	*tls.Conn
	socket syscall.Conn
}

// watched is c with its socket; c itself where there is none.
func watched(c net.Conn) net.Conn {
	secured, ok := c.(*tls.Conn)
	if !ok {
		return c
	}
	socket, ok := secured.NetConn().(syscall.Conn)
	if !ok {
		return c
	}
	return watchedConn{secured, socket}
}

// SyscallConn implements syscall.Conn, for the look of the library alone.
func (c watchedConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	return glance{raw}, nil
}

// glance is a socket that is looked at and not read.
type glance struct{ syscall.RawConn }

// Read looks itself in the place of its caller, which would take what waits there for words of
// Redis, and read on. These are records of TLS: most of all the one that says the end, before the
// end itself. Tickets of TLS 1.3 come before the first answer, and have been read by then. So
// whatever waits, the connection is replaced.
func (g glance) Read(func(fd uintptr) bool) error { return peek(g.RawConn) }
