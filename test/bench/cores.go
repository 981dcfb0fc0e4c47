// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/syncopate-dev/syncopate/test/hostile"
)

const (
	ofOperator = "the operator"
	ofServers  = "API server, etcd"
	ofHarm     = "clients that do harm"
	ofRest     = "NATS, neighbours"

	noProcess = -1
)

// parts are those who use the processors in the suites neighbours and hostile. NATS is
// part of this process, and Redis is counted with it.
var parts = []string{ofOperator, ofServers, ofHarm, ofRest}

// cpuUse is what each part has used so far.
type cpuUse map[string]time.Duration

// cpuUseNow looks at this process and what it started. harm is the number of the process that does
// harm. What has ended was an operator that gave way to another: no server and no harm ends while
// it is measured.
func cpuUseNow(harm int) cpuUse {
	own := statOf(os.Getpid())
	u := cpuUse{ofRest: own.used, ofOperator: own.gone}
	files, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return u
	}
	for _, file := range files {
		pid := int(atoi(filepath.Base(file)))
		s := statOf(pid)
		if s.parent != os.Getpid() {
			continue
		}
		switch name := field(filepath.Join(file, "status"), "Name"); {
		case pid == harm:
			u[ofHarm] += s.used
		case name == "manager":
			u[ofOperator] += s.used
		case name == "kube-apiserver", name == "etcd":
			u[ofServers] += s.used
		default:
			u[ofRest] += s.used
		}
	}
	return u
}

// since is how many cores each part used since before, a time ago.
func (u cpuUse) since(before cpuUse, ago time.Duration) map[string]float64 {
	cores := map[string]float64{}
	for _, part := range parts {
		cores[part] = (u[part] - before[part]).Seconds() / ago.Seconds()
	}
	return cores
}

// harmMain is the life of a process that does harm.
func harmMain() int {
	if err := hostile.DoHarm(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "harm:", err)
		return 1
	}
	return 0
}
