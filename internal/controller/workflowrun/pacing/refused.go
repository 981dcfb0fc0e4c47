// SPDX-License-Identifier: Apache-2.0

package pacing

import "time"

const (
	// refusedPause is the wait after the first failure of a result; it doubles with each one, up to
	// the policy's longest delay.
	refusedPause = time.Second
	// noRoomPause is the first wait of a run for which not even the least of an end can be written,
	// or whose status is refused whatever is in it. It doubles with each try.
	noRoomPause = 5 * time.Second
	// maxDoublings keeps the doubling far above each limit, and in range.
	maxDoublings = 16
)

// Refused is the wait before a result is tried again that failed so many times before. It
// grows, so that a refusal which ends after some minutes does not use up the budget of all
// that came meanwhile.
func Refused(failures int, limit time.Duration) time.Duration {
	return min(refusedPause<<min(failures, maxDoublings), limit)
}

// NoRoom is the wait before a run is written again that was refused so many times before, for want
// of room, by a policy, or as if it did not exist.
func NoRoom(tries int, limit time.Duration) time.Duration {
	return min(noRoomPause<<min(tries, maxDoublings), limit)
}
