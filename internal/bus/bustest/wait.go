// SPDX-License-Identifier: Apache-2.0

package bustest

import (
	"testing"
	"time"
)

// Patience is for what must happen.
const Patience = 20 * time.Second

const poll = 10 * time.Millisecond

// Eventually polls until ok, or fails the test.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", Patience, what)
		}
	}
}

// Receive takes n values from a channel, or fails the test.
func Receive[T any](t testing.TB, what string, from <-chan T, n int) []T {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	var got []T
	for len(got) < n {
		select {
		case v := <-from:
			got = append(got, v)
		case <-deadline.C:
			t.Fatalf("%s: %d of %d within %s", what, len(got), n, Patience)
		}
	}
	return got
}

// Nothing fails the test if the channel gives something within d.
func Nothing[T any](t testing.TB, what string, from <-chan T, d time.Duration) {
	t.Helper()
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case v := <-from:
		t.Fatalf("%s: got %+v", what, v)
	case <-over.C:
	}
}

// Closed says whether a channel is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
