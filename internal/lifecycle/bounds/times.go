// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Second is a time as metav1.Time is on the wire: in UTC, with a precision of one second.
func Second(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// Micro is a time as metav1.MicroTime is on the wire: in UTC, with a precision of one microsecond.
func Micro(t time.Time) *metav1.MicroTime {
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

// firstYear and lastYear are those of the times that a spec may name. A year of five digits
// cannot be written.
const (
	firstYear = 2000
	lastYear  = 9999
)

// YearProblem is what is wrong with the year of a time that a spec names; "": nothing. The API
// server refuses such a time, but may have one of before it did.
//
// Example: 9999-12-31T23:59:59-12:00 can be read. In UTC it is of the year 10000, and no status
// that has it can be written.
func YearProblem(t time.Time) string {
	if year := t.UTC().Year(); year < firstYear || year > lastYear {
		return fmt.Sprintf("it is not in the years %d to %d of UTC", firstYear, lastYear)
	}
	return ""
}

// Writable is a time, or the one next to it that can be written.
func Writable(t time.Time) time.Time {
	switch year := t.UTC().Year(); {
	case year < 0:
		return time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	case year > lastYear:
		return time.Date(lastYear, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}

// TimeText is a time as messages have it; "?": there is none.
func TimeText(t *metav1.MicroTime) string {
	if t == nil {
		return "?"
	}
	return t.UTC().Format(time.RFC3339)
}

// clockTolerance is by how much a moment may be late before it counts as one of a wrong clock: the
// clocks of two operators differ a little.
const clockTolerance = time.Second

// Within is the moment until which something waits that waits no longer than longest. A moment that
// is later was written while an operator's clock was ahead; the wait begins anew then.
func Within(until *metav1.MicroTime, now time.Time, longest time.Duration) *metav1.MicroTime {
	if until == nil || !until.After(now.Add(longest+clockTolerance)) {
		return until
	}
	return Micro(now.Add(longest))
}

// Begun is when something began that is not to begin any more: now, if a clock that was
// ahead wrote it.
func Begun(at metav1.Time, now time.Time) *metav1.Time {
	if at.After(now.Add(clockTolerance)) {
		return Second(now)
	}
	return &at
}

// Due says whether the moment came; an absent one did.
func Due(now time.Time, t *metav1.MicroTime) bool {
	return t == nil || !now.Before(t.Time)
}
