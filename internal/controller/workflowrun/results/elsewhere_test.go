// SPDX-License-Identifier: Apache-2.0

package results

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: Adopt that hands out the runs of other partitions, or one run twice, makes this fail.
func TestAdopt_HandsOverRunsThatWereDeletedElsewhere(t *testing.T) {
	x := NewIndex()
	mine, other := runOf("ns", "mine"), runOf("ns", "other")
	for i := 0; protocol.Partition(string(other.UID)) == protocol.Partition(string(mine.UID)); i++ {
		other.UID = types.UID(fmt.Sprint("u-other-", i))
	}
	of := map[int]bool{protocol.Partition(string(mine.UID)): true}
	x.See(mine)
	x.See(other)
	x.Remove(mine, false)
	x.Remove(other, false)
	key := types.NamespacedName{Namespace: "ns", Name: "mine"}
	if gone := x.TakeDeleted(key); len(gone) != 0 {
		t.Errorf("%v is cleaned up by who does not drive it", gone)
	}
	if keys := x.Adopt(of); len(keys) != 1 || keys[0] != key {
		t.Errorf("%v, want %v", keys, key)
	}
	if gone := x.TakeDeleted(key); len(gone) != 1 || gone[0].UID != mine.UID {
		t.Errorf("tombstones %v", gone)
	}
	if keys := x.Adopt(of); len(keys) != 0 {
		t.Errorf("%v again", keys)
	}
}

// mutation: elsewhere without its bound, or a bound that does not count jobs, makes this fail.
func TestElsewhereIsBounded(t *testing.T) {
	var e elsewhere
	many := make([]lifecycle.Withdrawal, maxElsewhere/2)
	for i := range 5 {
		e.add(grave{left: Tombstone{UID: types.UID(fmt.Sprint(i)), Jobs: many}})
	}
	if len(e.graves) != 1 || e.graves[0].left.UID != "4" || e.weight != 1+len(many) {
		t.Errorf("%d are kept, with a weight of %d", len(e.graves), e.weight)
	}
	e.add(grave{left: Tombstone{UID: "large", Jobs: make([]lifecycle.Withdrawal, 2*maxElsewhere)}})
	if len(e.graves) != 0 || e.weight != 0 {
		t.Errorf("%d are kept, with a weight of %d", len(e.graves), e.weight)
	}
}
