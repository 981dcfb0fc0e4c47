// SPDX-License-Identifier: Apache-2.0

// Package norace has what tests say for which the race detector has nothing to find: they explore,
// play by chance or measure, in one goroutine or in some that share nothing. With it they take
// three to ten times as long. So hack/test.sh runs all tests with the race detector, where these
// skip, and then these without it.
package norace

import "testing"

// Only skips a test under the race detector. hack/test.sh finds the tests that call it by their
// source, so the call stands in the body of the test itself.
func Only(tb testing.TB) {
	tb.Helper()
	if raceDetector {
		tb.Skip("hack/test.sh runs this without the race detector")
	}
}
