// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"
	"strings"
	"testing"
)

// mutation: a second fault that is drawn from all, or a first one, makes this fail.
func TestWantedFaultsAreDrawnByThemselvesAndInPairs(t *testing.T) {
	for name, c := range map[string]struct {
		wanted []string
		others bool // that somebody else is beside them
	}{
		"two that go together":      {[]string{"redis hangs", "watches cut"}, false},
		"two that never do":         {[]string{"says 409", "says 429"}, true},
		"all machines, with nobody": {[]string{"all machines sleep"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			others, alone := false, false
			for seed := range uint64(50) {
				for _, strike := range draw(t, partOne, seed, c.wanted) {
					for i, f := range strike {
						meant := slices.ContainsFunc(c.wanted, func(w string) bool { return strings.Contains(f.name, w) })
						if i == 0 && !meant {
							t.Fatalf("%s is drawn first", f.name)
						}
						others = others || !meant
					}
					alone = alone || len(strike) == 1
					if len(strike) == 2 && strike[0].to == strike[1].to {
						t.Errorf("%s at the same time", names(strike))
					}
				}
			}
			if others != c.others || !alone {
				t.Errorf("somebody else is beside them: %t; one is by itself: %t", others, alone)
			}
		})
	}
}

// mutations: differ without unanswered writes, with them in rounds that are not exact, or with them
// as an excuse for too many makes this fail.
func TestWritesThatWereGivenUpExcuseAsManyThatWereNotCounted(t *testing.T) {
	for name, c := range map[string]struct {
		told, seen, givenUp int
		exact, wrong        bool
	}{
		"as many":               {4, 4, 0, true, false},
		"one fewer":             {3, 4, 0, true, true},
		"one that was given up": {3, 4, 1, true, false},
		"one of two":            {2, 4, 1, true, true},
		"one more":              {5, 4, 1, true, true},
		"counts that were lost": {1, 4, 0, false, false},
		"one more than lost":    {5, 4, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := accounts{counted: map[string]float64{byVersion: float64(c.told), unanswered: float64(c.givenUp)}, seen: map[string]int{byVersion: c.seen}}
			if got := differ(accounts{}, now, c.exact, nil); (len(got) > 0) != c.wrong {
				t.Errorf("%q", got)
			}
		})
	}
}
