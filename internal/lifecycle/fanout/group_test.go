// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

func set(item int) (s itemset.Set) {
	s.Add(item)
	return s
}

// mutations: the earlier time, or the lower attempt, of two groups makes this fail.
func TestGroupsThatAreMadeOneHaveTheLaterTimes(t *testing.T) {
	epoch := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	early, late := bounds.Micro(epoch), bounds.Micro(epoch.Add(time.Minute))
	may := func(_, _ *Group) bool { return true }
	got := joined([]Group{
		{Set: set(0), Phase: v1alpha1.StepBackingOff, Attempt: 3, Failures: 1, NextAttemptAt: early},
		{Set: set(2), Phase: v1alpha1.StepBackingOff, Attempt: 2, Failures: 2, NextAttemptAt: late},
	}, 1, epoch, may)
	if g := got[0]; len(got) != 1 || g.Set.String() != "0,2" || g.Attempt != 3 || g.Failures != 1 || !g.NextAttemptAt.Equal(late) {
		t.Errorf("%d groups, the first %+v", len(got), g)
	}
	got = joined([]Group{
		{Set: set(1), Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: early, StartedAt: late},
		{Set: set(2), Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: late, StartedAt: early},
	}, 1, epoch, may)
	if g := got[0]; !g.DispatchedAt.Equal(late) || !g.StartedAt.Equal(late) {
		t.Errorf("%+v", g)
	}
}

// mutation: the failures of a group in place of its attempts make this fail.
func TestWaitsOfGroupsThatWereMadeOneAreKept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	minute, jitter := int64(60_000), int32(0)
	it := &Items{spec: &v1alpha1.Step{Retry: v1alpha1.Retry{Backoff: v1alpha1.Backoff{InitialMillis: &minute, FactorPercent: 200, MaxMillis: new(int64(3_600_000)), JitterPercent: &jitter}}}}
	it.groups = joined([]Group{
		{Set: set(0), Phase: v1alpha1.StepBackingOff, Attempt: 3, Failures: 1, NextAttemptAt: bounds.Micro(now.Add(time.Minute))},
		{Set: set(1), Phase: v1alpha1.StepBackingOff, Attempt: 3, Failures: 3, NextAttemptAt: bounds.Micro(now.Add(4 * time.Minute))},
	}, 1, now, func(_, _ *Group) bool { return true })
	for _, ahead := range []time.Duration{0, time.Hour} { // of the clock that wrote the groups
		it.groups[0].NextAttemptAt = bounds.Micro(now.Add(4*time.Minute + ahead))
		it.BoundWaits(30*time.Second, now)
		if got := it.groups[0].NextAttemptAt; !got.Equal(bounds.Micro(now.Add(4 * time.Minute))) {
			t.Errorf("written by a clock that was %s ahead, it waits until %s", ahead, got)
		}
	}
}
