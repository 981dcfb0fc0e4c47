// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// earliest collects moments; zero ones do not count, nor those until beyond, if it is set.
type earliest struct{ at, beyond time.Time }

func (e *earliest) add(t time.Time) {
	if !t.IsZero() && (e.beyond.IsZero() || t.After(e.beyond)) && (e.at.IsZero() || t.Before(e.at)) {
		e.at = t
	}
}

func (e *earliest) after(now time.Time) time.Time {
	if !e.at.IsZero() && !e.at.After(now) {
		return now.Add(bounds.MinWake)
	}
	return e.at
}
