// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// After a moment in which Redis' clock was a day ahead all fences are, for a day: they only rise.
// How long a lock is held is told all the same, from when it was first seen.
//
// mutations: ages by the fence alone, one that forgets since when a hold was seen as its fence is
// reached, and one that keeps what is over, make this fail.
func TestTheAgeOfAHoldWhoseFenceIsAheadOfTheClock(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := New(Options{Clock: clock})
	hold := func(run string, fence int64) store.LocksSnapshot {
		var s store.LocksSnapshot
		tied{run: run, holds: []string{"gpus/a"}}.enter(&s, 1)
		tied{run: "other", waits: []string{"gpus/a"}}.enter(&s, 2)
		s.Holds[0].Fence = fence
		return s
	}
	check := func(when string, s store.LocksSnapshot, want time.Duration) {
		t.Helper()
		must(t, c.report(t.Context(), &view{}, s))
		if got := testutil.ToFloat64(c.metrics.oldest.WithLabelValues("gpus")); got != want.Seconds() {
			t.Errorf("%s: held for %v s, want %v", when, got, want)
		}
	}
	at := clock.Now().UnixMilli()
	check("a fence of now", hold("first", at), 0)
	clock.Step(time.Hour)
	check("an hour later", hold("first", at), time.Hour)

	ahead := hold("second", clock.Now().Add(24*time.Hour).UnixMilli())
	check("a fence of tomorrow", ahead, 0)
	clock.Step(2 * time.Hour)
	check("two hours later", ahead, 2*time.Hour)
	next := hold("third", ahead.Holds[0].Fence+1)
	check("the next holder", next, 0)
	clock.Step(22 * time.Hour)
	check("as the fence is reached", next, 22*time.Hour)
	clock.Step(time.Hour)
	check("and after that", next, 23*time.Hour)
	for i := range 100 {
		check("others", hold(fmt.Sprint(i), clock.Now().Add(time.Hour).UnixMilli()), 0)
	}
	if n := len(c.ahead); n > 1 {
		t.Errorf("%d holds are remembered, and there is one", n)
	}
}
