// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package redistest

import "syscall"

// diesWithParent has no counterpart here: a test binary that is killed leaves its server behind.
func diesWithParent() *syscall.SysProcAttr { return nil }
