// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// While resyncs fail only news have one tried before it is due, and not at once after the last one.
//
// mutations: a Kick that is news, an After that does not look why, or that always is, a Tell that
// is no Kick, and a Begin that leaves old news, make this fail.
func TestWhatHastensAResync(t *testing.T) {
	const pause = 30 * time.Second
	for name, c := range map[string]struct {
		before, meanwhile func(Kicks) // in which rest it comes
		asked, failed     time.Duration
	}{
		"nothing":                     {asked: pause, failed: pause},
		"a kick":                      {meanwhile: Kicks.Kick, asked: 5 * time.Second, failed: pause},
		"news":                        {meanwhile: Kicks.Tell, asked: 5 * time.Second, failed: 5 * time.Second},
		"news of before":              {before: Kicks.Tell, asked: LeastPause, failed: pause},
		"Redis cannot be used":        {meanwhile: func(k Kicks) { k.After(true) }, asked: 5 * time.Second, failed: pause},
		"something else did not work": {meanwhile: func(k Kicks) { k.After(false) }, asked: 5 * time.Second, failed: 5 * time.Second},
	} {
		for after, want := range map[bool]time.Duration{false: c.asked, true: c.failed} {
			synctest.Test(t, func(t *testing.T) {
				k := NewKicks()
				if c.before != nil {
					c.before(k)
				}
				k.Begin()
				if c.meanwhile != nil {
					clock.RealClock{}.AfterFunc(5*time.Second, func() { c.meanwhile(k) })
				}
				to := k.Asked()
				if after {
					to = k.News()
				}
				began := clock.RealClock{}.Now()
				Rest(t.Context(), clock.RealClock{}, pause, to, func(context.Context) bool { return false })
				if took := (clock.RealClock{}).Since(began); took != want {
					t.Errorf("%s, after a failure %t: %s, want %s", name, after, took, want)
				}
			})
		}
	}
}
