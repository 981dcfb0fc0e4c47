// SPDX-License-Identifier: Apache-2.0

package redistest

import "syscall"

// diesWithParent makes the kernel kill the server when the test binary ends in a way that
// runs no cleanups.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
