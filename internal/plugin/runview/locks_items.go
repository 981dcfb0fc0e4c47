// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
)

// itemLocks are those of the items of a step.
func itemLocks(s *v1alpha1.StepStatus) []v1alpha1.ItemLocks {
	if s.ForEach == nil {
		return nil
	}
	return s.ForEach.Locks
}

// lockWaitOf is the longest wait of a step, or of one of its items; nil: none waits.
func lockWaitOf(s *v1alpha1.StepStatus) *v1alpha1.LocksWait {
	first := s.LockWait
	for _, l := range itemLocks(s) {
		if w := l.LockWait; w != nil && (first == nil || w.StartedAt.Time.Before(first.StartedAt.Time)) {
			first = w
		}
	}
	return first
}

// itemPhase is what an item under way does.
func itemPhase(s *v1alpha1.StepStatus, item int32) string {
	for i := range s.ForEach.Groups {
		if set, err := itemset.Parse(s.ForEach.Groups[i].Items); err == nil && set.Contains(int(item)) {
			return string(s.ForEach.Groups[i].Phase)
		}
	}
	return string(s.Phase)
}

// partName names a step, or an item of it, as the operator does.
func partName(step string, item *int32) string {
	if item == nil {
		return step
	}
	return v1alpha1.ItemLocks{Item: *item}.Part(step)
}

func compareItems(a, b *int32) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Compare(*a, *b)
}

// stepText names a step, or an item of it, for people.
func stepText(step string, item *int32) string {
	if item == nil {
		return step
	}
	return fmt.Sprintf("%s item %d", step, *item)
}
