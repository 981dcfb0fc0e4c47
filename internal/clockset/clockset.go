// SPDX-License-Identifier: Apache-2.0

// Package clockset notices that the wall clock of this machine was set, or that the machine slept.
//
// Example: a clock that is an hour ahead is put right. A run that was to be looked at in five
// seconds has a time in its status that is an hour and five seconds away now; and one whose wait of
// an hour was computed by the wrong clock has a timer for that hour, though its time has come. So
// whoever waits for a time of the wall clock looks again when the clock was set.
//
// A timer of Go runs by the monotonic clock, which nobody sets, and which stands still while a
// machine sleeps. The wall clock was set if it has moved by another time than the monotonic one.
package clockset

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

const (
	// every is the time between two looks.
	every = time.Second
	// least is what counts as set: corrections that are smaller delay no wait by more.
	least = 500 * time.Millisecond
)

// Watch looks at two clocks.
type Watch struct {
	// Wall is the time of the wall clock.
	Wall func() time.Time
	// Passed is by how much the monotonic clock has moved since some moment.
	Passed func() time.Duration
	// Ticks makes the tickers between looks.
	Ticks clock.WithTicker
	// Set is called with how far the wall clock was moved; positive: forward. It must not block.
	Set func(by time.Duration)
}

// Start looks until ctx ends.
func (w *Watch) Start(ctx context.Context) error {
	tick := w.Ticks.NewTicker(every)
	defer tick.Stop()
	ahead := w.ahead()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		now := w.ahead()
		if by := now - ahead; by.Abs() >= least {
			w.Set(by)
		}
		ahead = now
	}
}

// ahead is how much further the wall clock is than the monotonic one, from some moment on.
func (w *Watch) ahead() time.Duration {
	return time.Duration(w.Wall().UnixNano()) - w.Passed()
}

// NeedLeaderElection is false: each process has a clock.
func (*Watch) NeedLeaderElection() bool { return false }
