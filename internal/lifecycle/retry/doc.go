// SPDX-License-Identifier: Apache-2.0

// Package retry says whether a failed attempt is followed by another, and after what wait.
//
// For example, with initialMillis 1000 and factorPercent 200 the waits are about 1 s, 2 s and
// 4 s. The jitter is a hash of the attempt's id, so equal inputs give equal waits. All
// functions are pure.
package retry
