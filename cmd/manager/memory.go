// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/syncopate-dev/syncopate/internal/memgoal"
)

// memoryGoal is how much memory the garbage collector aims at, in bytes; 0: there is no goal.
func memoryGoal(percent int, getenv func(string) string) (int64, error) {
	if percent < 0 || percent > 100 {
		return 0, fmt.Errorf("--memory-percent %d: need 0 to 100", percent)
	}
	return memgoal.Of(percent, getenv)
}
