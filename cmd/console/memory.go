// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
)

// memoryGoal is how much memory the garbage collector aims at, in bytes: three quarters of the
// container's limit, so that it works harder before the kernel ends the process. 0: there is none,
// or $GOMEMLIMIT says it.
func memoryGoal(getenv func(string) string) (int64, error) {
	text := getenv("MEMORY_LIMIT")
	if text == "" || getenv("GOMEMLIMIT") != "" {
		return 0, nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit < 0 {
		return 0, fmt.Errorf("$MEMORY_LIMIT %q: need a number of bytes", text)
	}
	return limit / 4 * 3, nil
}
