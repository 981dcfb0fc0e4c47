// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrLockFence is returned for a header HeaderLockFence that is not "<lock>=<decimal fence>".
var ErrLockFence = errors.New("invalid " + HeaderLockFence)

// ParseLockFences reads the values of HeaderLockFence; nil: there are none. The name of a lock may
// have an "=" in it, so the last one counts.
func ParseLockFences(values []string) (map[string]int64, error) {
	var all map[string]int64
	for _, v := range values {
		at := strings.LastIndexByte(v, '=')
		if at < 1 {
			return nil, fmt.Errorf("%w: %.200q", ErrLockFence, v)
		}
		fence, err := strconv.ParseInt(v[at+1:], 10, 64)
		if err != nil || fence < 1 {
			return nil, fmt.Errorf("%w: %.200q", ErrLockFence, v)
		}
		if all == nil {
			all = map[string]int64{}
		}
		all[v[:at]] = fence
	}
	return all, nil
}
