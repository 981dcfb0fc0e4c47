// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"
)

func TestJitterStaysWithinAFifth(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: 800 * time.Millisecond, 0.5: time.Second, 1: 1200 * time.Millisecond} {
		c := &Conn{config: Config{Rand: func() float64 { return r }}}
		if got := c.Jittered(time.Second).Round(time.Millisecond); got != want {
			t.Errorf("jittered at %v is %s, want %s", r, got, want)
		}
	}
}
