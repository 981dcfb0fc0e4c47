// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// mutations: a rest that does not look, that ends at any look, that is not cut off by its end, or
// that hears no kick, or one that came just after the last resync at once, makes this fail.
func TestRest(t *testing.T) {
	const pause = 30 * time.Second
	never := func(context.Context) bool { return false }
	for name, c := range map[string]struct {
		pause  time.Duration
		kickIn time.Duration // 0: never
		endIn  time.Duration // 0: never
		wanted func(looks int) bool
		took   time.Duration
		looks  int
	}{
		"nothing happens":         {pause: pause, took: pause, looks: 14},
		"it is short":             {pause: time.Second, took: time.Second},
		"it is kicked":            {pause: pause, kickIn: 5 * time.Second, took: 5 * time.Second, looks: 2},
		"it is kicked at once":    {pause: pause, kickIn: time.Millisecond, took: LeastPause},
		"it ends":                 {pause: pause, endIn: 5 * time.Second, took: 5 * time.Second, looks: 2},
		"the third look wants it": {pause: pause, wanted: func(looks int) bool { return looks == 3 }, took: 3 * LookPause, looks: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, kicked, looks, began := t.Context(), make(chan struct{}, 1), 0, clock.RealClock{}.Now()
				if c.kickIn > 0 {
					clock.RealClock{}.AfterFunc(c.kickIn, func() { kicked <- struct{}{} })
				}
				if c.endIn > 0 {
					var end context.CancelFunc
					ctx, end = context.WithTimeout(ctx, c.endIn)
					defer end()
				}
				Rest(ctx, clock.RealClock{}, c.pause, kicked, func(ctx context.Context) bool {
					if looks++; c.wanted != nil {
						return c.wanted(looks)
					}
					return never(ctx)
				})
				if took := (clock.RealClock{}).Since(began); took != c.took || looks != c.looks {
					t.Errorf("it took %s and %d looks; want %s and %d", took, looks, c.took, c.looks)
				}
			})
		})
	}
}
