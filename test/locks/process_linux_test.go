// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// diesWithParent makes the kernel kill a child, even a paused one, when the test binary ends in a
// way that runs no cleanups.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// instant is a time that all processes of the machine share and that never steps.
func instant() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no Linux without this clock
	}
	return time.Duration(ts.Nano())
}
