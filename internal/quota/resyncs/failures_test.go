// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"slices"
	"testing"
	"time"
)

// mutations: a pause that does not grow, that has no bound, or that grows where Redis can be used,
// makes this fail.
func TestThePauseGrowsWhereRedisCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		unusable []bool
		want     []time.Duration
	}{
		"it cannot be used":   {slices.Repeat([]bool{true}, 7), []time.Duration{1, 2, 4, 8, 16, 30, 30}},
		"another fails":       {slices.Repeat([]bool{false}, 3), []time.Duration{1, 1, 1}},
		"one after the other": {[]bool{true, true, false, true, false, true}, []time.Duration{1, 2, 1, 4, 1, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			var f Failures
			for i, unusable := range c.unusable {
				if got := f.Next(unusable); got != c.want[i]*time.Second {
					t.Errorf("after failure %d: %s, want %s", i+1, got, c.want[i]*time.Second)
				}
			}
		})
	}
}

// mutations: failures that are all logged, or the first only, make this fail, as does a count of
// them: where pauses are long nobody would be told for a quarter of an hour.
func TestFailuresAreLoggedNowAndThen(t *testing.T) {
	for name, c := range map[string]struct {
		unusable bool
		want     []int
	}{
		"with short pauses": {false, []int{0, 30}},
		"with long pauses":  {true, []int{0, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			var f Failures
			var logged []int
			for i := range 60 {
				if f.Next(c.unusable); f.Logs() && len(logged) < len(c.want) {
					logged = append(logged, i)
				}
			}
			if !slices.Equal(logged, c.want) {
				t.Errorf("logged: %v, want %v", logged, c.want)
			}
		})
	}
}
