// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"testing"
	"time"
)

// mutation: a pass that something else woke counted as a try of the policy's makes this fail.
func TestOnlyTriesOfThePolicyCount(t *testing.T) {
	var v Votes
	began := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	const wait = 500 * time.Millisecond
	for i, step := range []struct{ at, want int }{{0, 1}, {100, 1}, {499, 1}, {500, 2}, {600, 2}, {1000, 3}} {
		v.busy(at(step.at), wait)
		if v.tries != step.want {
			t.Errorf("look %d, after %d ms: %d tries, want %d", i, step.at, v.tries, step.want)
		}
	}
	v.had(at(0), at(1200))
	if v.BusyTries != 3 || v.Wait != 1200*time.Millisecond {
		t.Errorf("%+v", v)
	}
	v.tries = 1
	if v.had(time.Time{}, at(2000)); v.BusyTries != 3 || v.Wait != 1200*time.Millisecond {
		t.Errorf("a shorter wait made %+v", v)
	}
}
