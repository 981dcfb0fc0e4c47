// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"testing"
	"time"
)

// mutation: a part that is counted for another, or a rate that ignores what was used before, makes
// this fail.
func TestTheProcessorsOfAProcessThatDoesHarmAreItsOwn(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	before := cpuUseNow(cmd.Process.Pid)
	var now cpuUse
	for end := time.Now().Add(time.Minute); ; {
		if now = cpuUseNow(cmd.Process.Pid); now[ofHarm]-before[ofHarm] >= 100*time.Millisecond {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a busy process used %s", now[ofHarm]-before[ofHarm])
		}
	}
	if now[ofServers] != 0 || now[ofOperator] != before[ofOperator] {
		t.Errorf("others used its time: %v", now)
	}
	cores := cpuUse{ofHarm: 3 * time.Second}.since(cpuUse{ofHarm: time.Second}, 4*time.Second)
	if cores[ofHarm] != 0.5 || cores[ofRest] != 0 {
		t.Errorf("%v; want half a core", cores)
	}
}
