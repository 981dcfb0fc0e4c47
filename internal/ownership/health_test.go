// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// A member is unfit when it was not fit for a whole Lease, and fit again after another; one that
// lapses again and again is unfit for longer each time.
// mutation: mark that looks at fit alone, and probation with the same time for each lapse, make
// this fail.
func TestWhatAMemberSaysOfItself(t *testing.T) {
	const lease = 6 * time.Second
	h := newHealth(Options{}, Timing{}.or())
	unfit := func(at rules.Time) bool { return h.mark(at, true).Unfit }
	at := time.Minute
	h.fit, h.changed = false, at
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{lease - 1, false}, {lease, true}} {
		if got := unfit(at + step.after); got != step.want {
			t.Errorf("unfit %v after Fit failed: %v", step.after, got)
		}
	}
	at += time.Minute
	h.fit, h.changed = true, at
	if !unfit(at+lease-1) || unfit(at+lease) {
		t.Error("it is not fit one Lease after Fit succeeded")
	}
	if !h.mark(at+lease, false).Unfit {
		t.Error("it is fit without a session")
	}
	var waits []time.Duration
	for range 9 {
		at += 30 * time.Second
		h.lapsed(at)
		waits = append(waits, max(0, h.probation()-at))
	}
	want := []time.Duration{0, 6 * time.Second, 12 * time.Second, 24 * time.Second, 48 * time.Second, time.Minute, time.Minute, time.Minute, time.Minute}
	for i := range want {
		if waits[i] != want[i] {
			t.Fatalf("unfit for %v after each lapse, want %v", waits, want)
		}
	}
	if at += time.Hour; !func() bool { h.lapsed(at); return h.probation() == 0 }() {
		t.Error("old lapses count")
	}
}
