// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"fmt"
	"testing"
	"time"
)

// mutation: a memory without a bound, one that forgets what came last, or the places of one event
// taken twice, makes this fail.
func TestTheMemoryOfWhatWasSaidIsBounded(t *testing.T) {
	s, now := newSaid(), time.Unix(1000, 0)
	said := func(i int) *words { return &words{note: fmt.Sprint(i)} }
	for i := range 3 * saidPlaces {
		s.remember(said(i), now)
		s.remember(said(i), now)
		if !s.before(said(i), now) || len(s.at) > saidPlaces || len(s.order) > saidPlaces {
			t.Fatalf("after %d: %d and %d are remembered", i, len(s.at), len(s.order))
		}
	}
	for i := range 3 * saidPlaces {
		if got, want := s.before(said(i), now), i >= 2*saidPlaces; got != want {
			t.Fatalf("the one of %d is remembered: %v, want %v", i, got, want)
		}
	}
}
