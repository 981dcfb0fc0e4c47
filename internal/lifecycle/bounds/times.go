// SPDX-License-Identifier: Apache-2.0

package bounds

import (
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

// Due says whether the moment came; an absent one did.
func Due(now time.Time, t *metav1.MicroTime) bool {
	return t == nil || !now.Before(t.Time)
}
