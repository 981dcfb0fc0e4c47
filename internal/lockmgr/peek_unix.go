// SPDX-License-Identifier: Apache-2.0

//go:build unix && !aix

package lockmgr

import (
	"errors"
	"io"
	"syscall"
)

// peek is nil where a socket is open and has nothing to read. It takes nothing from it, and does
// not wait.
//
// Errors: io.EOF, errUnasked, and those of the socket.
func peek(socket syscall.RawConn) (cause error) {
	err := socket.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case n > 0:
			cause = errUnasked
		case err == nil:
			cause = io.EOF
		case !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR):
			cause = err
		}
		return true
	})
	return errors.Join(err, cause)
}
