// SPDX-License-Identifier: Apache-2.0

package controller

import "time"

// lasts is for how long something was found in each look: before has since when, as the look before
// noted it, and now it is noted in next.
func lasts[K comparable](before, next map[K]time.Time, what K, now time.Time) time.Duration {
	since, known := before[what]
	if !known {
		since = now
	}
	next[what] = since
	return now.Sub(since)
}
