// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"fmt"
	"slices"
	"testing"
)

// mutation: a MoveSlot that returns before all replicas know makes this fail: a slot or two of
// these end with nobody.
func TestSlotsThatMoveOneAfterTheOtherKeepAnOwner(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Host{})
	for i := range 60 {
		c.MoveSlot(fmt.Sprintf("slot-%d", i%20))
	}
	c.AwaitWhole()
	for i := range 20 {
		key := fmt.Sprintf("slot-%d", i)
		if !slices.ContainsFunc(c.Masters(), func(n *Server) bool { return n.admin().Exists(t.Context(), key).Err() == nil }) {
			t.Errorf("no master serves the slot of %s", key)
		}
	}
}
