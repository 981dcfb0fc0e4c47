// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"math"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/retry"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Attempt is one of an item that goes out now. Number -1: the numbers are used up.
type Attempt struct {
	Item     int
	Number   int32
	Failures int32 // of the item before it
}

// Due are the items whose wait for another attempt is over, those that waited for longest first.
// One whose attempt is another than those in flight waits on where these are so many that there is
// no room for it.
func (it *Items) Due(now time.Time, active int) []Attempt {
	var all []Attempt
	flying := it.aloft(active)
	for _, g := range slices.SortedStableFunc(slices.Values(it.groups), func(a, b Group) int { return a.since().Compare(b.since()) }) {
		if g.Phase != v1alpha1.StepBackingOff || !bounds.Due(now, g.NextAttemptAt) {
			continue
		}
		for item := range g.Set.All() {
			if !flying.mayAgain(&g) {
				break
			}
			next := int32(-1)
			if g.Attempt < math.MaxInt32 {
				next = g.Attempt + 1
				flying.add(again(&g))
			}
			all = append(all, Attempt{Item: item, Number: next, Failures: g.Failures})
		}
	}
	return all
}

// BoundWaits has no item wait longer for its next attempt than it can have been told to: limit is
// the longest wait that a worker may ask for.
func (it *Items) BoundWaits(limit time.Duration, now time.Time) {
	for k := range it.groups {
		if g := &it.groups[k]; g.Phase == v1alpha1.StepBackingOff {
			// Some of a group that was made of several have failed more often than it says, none
			// more often than it was tried.
			g.NextAttemptAt = bounds.Within(g.NextAttemptAt, now, retry.Longest(it.spec.Retry.Backoff, g.Attempt, limit))
		}
	}
}

// Free is how many items may begin, where the run has so much room.
func (it *Items) Free(room int) int {
	places := int(bounds.PositiveOr(it.spec.ForEach.MaxParallel, bounds.DefaultMaxParallel)) - it.UnderWay()
	return max(0, min(places, room, int(it.St.Total-it.St.Begun)))
}

// Launch makes an attempt of an item its last one.
func (it *Items) Launch(a Attempt, now time.Time) {
	it.take(a.Item)
	it.put(a.Item, Group{Phase: v1alpha1.StepDispatched, Attempt: a.Number, Failures: a.Failures, DispatchedAt: bounds.Micro(now)})
	it.Begin(a.Item)
}

// Begin notes that an item began, or failed before it did.
func (it *Items) Begin(item int) { it.St.Begun = max(it.St.Begun, int32(item)+1) }

// TimedOut are the groups whose time is over.
func (it *Items) TimedOut(over func(time.Time) bool) []Group {
	return slices.DeleteFunc(slices.Clone(it.groups), func(g Group) bool { return !over(g.end(it.spec)) })
}

// Moments calls add with each moment at which something is due among the items; retries: items that
// back off may go out. Those that would not, by Due, wait for others to be over, and not
// for a time.
func (it *Items) Moments(retries bool, active int, add func(time.Time)) {
	flying := it.aloft(active)
	for k := range it.groups {
		g := &it.groups[k]
		add(g.end(it.spec))
		if retries && g.Phase == v1alpha1.StepBackingOff && g.NextAttemptAt != nil && flying.mayAgain(g) {
			add(g.NextAttemptAt.Time)
		}
	}
}

// end is when the items of a group in flight time out; zero: they are not in flight.
func (g *Group) end(step *v1alpha1.Step) time.Time { return status.AttemptEnd(step, g.AsStep()) }

// AsStep is a group as if it were a step with one job.
func (g *Group) AsStep() *v1alpha1.StepStatus {
	return &v1alpha1.StepStatus{Phase: g.Phase, DispatchedAt: g.DispatchedAt, StartedAt: g.StartedAt}
}
