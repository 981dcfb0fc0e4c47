// SPDX-License-Identifier: Apache-2.0

// Package memgoal says how much memory the garbage collector of a container should aim at.
package memgoal

import (
	"fmt"
	"strconv"
)

// Of is a share of the container's limit, $MEMORY_LIMIT, in bytes, so that the collector works
// harder before the kernel ends the process. 0: there is no limit, or $GOMEMLIMIT says the goal.
func Of(percent int, getenv func(string) string) (int64, error) {
	text := getenv("MEMORY_LIMIT")
	if percent == 0 || text == "" || getenv("GOMEMLIMIT") != "" {
		return 0, nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit < 0 {
		return 0, fmt.Errorf("$MEMORY_LIMIT %q: need a number of bytes", text)
	}
	return limit / 100 * int64(percent), nil
}
