// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Pause is the time between two resyncs.
const Pause = 30 * time.Second

// LookPause is the time between two looks whether a resync is wanted before it is due.
const LookPause = 2 * time.Second

// LeastPause is the least time between two resyncs. What a resync finds may bring the next one: a
// run that cannot be written would have them follow each other without end.
const LeastPause = time.Second

// Rest returns when the next resync is to begin: after pause, when it is kicked, but not at once
// after the last one, when a look says that it is wanted, or when ctx ends. A kick is of this
// process; a look finds what others know.
func Rest(ctx context.Context, c clock.Clock, pause time.Duration, kicked <-chan struct{}, wanted func(context.Context) bool) {
	begun := c.Now()
	for due := begun.Add(pause); ; {
		timer := c.NewTimer(min(LookPause, due.Sub(c.Now())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-kicked:
			timer.Stop()
			if early := min(LeastPause-c.Now().Sub(begun), due.Sub(c.Now())); early > 0 {
				select {
				case <-ctx.Done():
				case <-c.After(early):
				}
			}
			return
		case <-timer.C():
			if !c.Now().Before(due) || wanted(ctx) {
				return
			}
		}
	}
}
