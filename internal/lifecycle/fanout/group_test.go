// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// mutations: the earlier time, or the lower attempt, of two groups makes this fail.
func TestGroupsThatAreMadeOneHaveTheLaterTimes(t *testing.T) {
	epoch := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	early, late := bounds.Micro(epoch), bounds.Micro(epoch.Add(time.Minute))
	set := func(item int) (s itemset.Set) { s.Add(item); return s }
	may := func(_, _ *Group) bool { return true }
	got := merged([]Group{
		{Set: set(0), Phase: v1alpha1.StepBackingOff, Attempt: 3, Failures: 1, NextAttemptAt: early},
		{Set: set(2), Phase: v1alpha1.StepBackingOff, Attempt: 2, Failures: 2, NextAttemptAt: late},
	}, 1, may)
	if g := got[0]; len(got) != 1 || g.Set.String() != "0,2" || g.Attempt != 3 || g.Failures != 1 || !g.NextAttemptAt.Equal(late) {
		t.Errorf("%d groups, the first %+v", len(got), g)
	}
	got = merged([]Group{
		{Set: set(1), Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: early, StartedAt: late},
		{Set: set(2), Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: late, StartedAt: early},
	}, 1, may)
	if g := got[0]; !g.DispatchedAt.Equal(late) || !g.StartedAt.Equal(late) {
		t.Errorf("%+v", g)
	}
}
