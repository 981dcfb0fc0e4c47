// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"cmp"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// HasLocks says whether each item needs locks of its own.
func (it *Items) HasLocks() bool { return len(it.spec.ForEach.Locks) > 0 }

// Await takes a place for so many new items, which need locks before they go out.
func (it *Items) Await(n int) {
	for ; n > 0 && it.St.Begun < it.St.Total; n-- {
		item := int(it.St.Begun)
		it.put(item, Group{Phase: v1alpha1.StepPending})
		it.Begin(item)
	}
}

// Awaiting are the items that have a place, and did not go out yet, in order.
func (it *Items) Awaiting() (all []int) {
	for k := range it.groups {
		if g := &it.groups[k]; g.Phase == v1alpha1.StepPending {
			all = slices.AppendSeq(all, g.Set.All())
		}
	}
	slices.Sort(all)
	return all
}

// LocksOf is what status has of the locks of an item. It is good until the next call.
func (it *Items) LocksOf(item int) *v1alpha1.ItemLocks {
	k := slices.IndexFunc(it.St.Locks, func(l v1alpha1.ItemLocks) bool { return int(l.Item) == item })
	if k < 0 {
		k = len(it.St.Locks)
		it.St.Locks = append(it.St.Locks, v1alpha1.ItemLocks{Item: int32(item)})
	}
	return &it.St.Locks[k]
}

// LeaveLines ends the waits of all items: who may not go out now is to be in nobody's way.
func (it *Items) LeaveLines() {
	for k := range it.St.Locks {
		it.St.Locks[k].LockWait = nil
	}
}

// settleLocks keeps what items under way have and wait for: what is over needs none.
func (it *Items) settleLocks() {
	var all []v1alpha1.ItemLocks
	for _, l := range it.St.Locks {
		if it.find(int(l.Item)) >= 0 && (len(l.Locks) > 0 || l.LockWait != nil) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.ItemLocks) int { return cmp.Compare(a.Item, b.Item) })
	it.St.Locks = all
}
