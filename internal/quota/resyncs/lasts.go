// SPDX-License-Identifier: Apache-2.0

package resyncs

import "time"

// UnknownTime is how long the cache does not know a run that has something before all runs are read
// live to learn whether it is gone. It may be younger than the cache, or was deleted just now, and
// who saw that is about to take what it has. With many runs there is one such at almost every look.
const UnknownTime = 10 * time.Second

// Lasts is for how long something was found in each look: before has since when, as the look before
// noted it, and now it is noted in next.
func Lasts[K comparable](before, next map[K]time.Time, what K, now time.Time) time.Duration {
	since, known := before[what]
	if !known {
		since = now
	}
	next[what] = since
	return now.Sub(since)
}
