// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// confine has a program see nothing but root, as the image's user. Only root may do that.
func confine(cmd *exec.Cmd, root, user string) bool {
	uid, gid, _ := strings.Cut(user, ":")
	u, err := strconv.ParseUint(uid, 10, 32)
	g, err2 := strconv.ParseUint(gid, 10, 32)
	if os.Geteuid() != 0 || err != nil || err2 != nil {
		return false
	}
	cmd.Dir = "/"
	cmd.Err = nil // it was looked for on this machine
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(u), Gid: uint32(g)}}
	return true
}
