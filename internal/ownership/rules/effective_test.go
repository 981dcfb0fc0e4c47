// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"testing"
)

// Desired is fair, and a member that comes or goes moves only its own part.
// mutation: weight without its last lines makes the parts unfair.
func TestDesiredIsFairAndStable(t *testing.T) {
	var members []string
	before := desiredOf(65, nil)
	for n := 1; n <= 7; n++ {
		name := fmt.Sprintf("syncopate-7d9f8b6c5-x%d-%d", n, n*7919)
		members = append(members, name)
		now := desiredOf(65, members)
		parts := map[string]int{}
		for p, owner := range now {
			parts[owner]++
			if owner != before[p] && owner != name {
				t.Errorf("%d members: partition %d moves from %s to %s", n, p, before[p], owner)
			}
		}
		for owner, part := range parts {
			if part < 65/(3*n) || part > 3*65/n {
				t.Errorf("%d members: %s has %d", n, owner, part)
			}
		}
		before = now
	}
	for p, owner := range desiredOf(3, nil) {
		if owner != "" {
			t.Errorf("partition %d should belong to %q, but there are no members", p, owner)
		}
	}
}
