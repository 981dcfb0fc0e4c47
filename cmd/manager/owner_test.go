// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// member is an owner that shares the runs.
type member struct {
	owner
	in atomic.Bool
}

func (m *member) Joined() bool { return m.in.Load() }

// mutation: joined that does not ask makes this fail.
func TestAReplicaIsReadyOnceItHasJoined(t *testing.T) {
	t.Parallel()
	m := &member{}
	ready := joined(m)
	if err := ready(nil); err == nil {
		t.Error("it is ready though it cannot be given partitions")
	}
	m.in.Store(true)
	if err := ready(nil); err != nil {
		t.Error(err)
	}
	if err := joined(ownership.New(ownership.Options{Member: "me", Clock: clock.RealClock{}}))(nil); err == nil {
		t.Error("a member that was never started is ready")
	}
	var leader struct{ owner }
	if err := joined(leader)(nil); err != nil {
		t.Errorf("one that leads, or stands by: %v", err)
	}
}
