// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// mutation: memoryGoal without its check makes this fail.
func TestTheCollectorAimsAtNoMoreThanAll(t *testing.T) {
	for percent, fails := range map[int]bool{-1: true, 0: false, 100: false, 101: true} {
		if _, err := memoryGoal(percent, func(string) string { return "" }); (err != nil) != fails {
			t.Errorf("%d: %v", percent, err)
		}
	}
}
