// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package locks

import (
	"syscall"
	"time"
)

// diesWithParent has no counterpart here: a child ends when its stdin does, unless it is paused.
func diesWithParent() *syscall.SysProcAttr { return nil }

// instant is a time that all processes of the machine share. Only Linux has one here
// that never steps.
func instant() time.Duration { return time.Duration(time.Now().UnixNano()) }
