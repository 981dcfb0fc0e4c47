// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
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

// A member says why others should have its partitions: Redis and NATS may be well.
// mutation: mark with one cause for all makes this fail.
func TestAMemberSaysWhyItIsUnfit(t *testing.T) {
	h := newHealth(Options{Fit: func(context.Context) error { return nil }}, Timing{}.or())
	at := time.Second
	says := func(session bool, want string) {
		t.Helper()
		if got := h.mark(at, session); got.Cause != want || got.Unfit != (want != "") {
			t.Errorf("it says %+v, want the cause %q", got, want)
		}
	}
	says(false, UnfitStarting)
	says(true, UnfitStarting) // Fit was not asked yet
	h.asked = true
	says(true, UnfitDependency)
	h.fit, h.changed = true, at
	says(true, "")
	h.lapsed(at)
	says(true, "")
	says(false, UnfitStarting)
	h.lapsed(at)
	says(true, UnfitProbation)
	h.fit, h.changed = false, at
	at += h.settle
	says(true, UnfitProbation)
	at += h.lease
	says(true, UnfitDependency)
	h = newHealth(Options{LeaderLease: "leader"}, Timing{}.or())
	says(false, UnfitStarting)
	says(true, UnfitBlocked)
	h.blocked = false
	says(true, "")
}
