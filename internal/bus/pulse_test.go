// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"
)

// mutation: one miss that counts, a miss that does not begin the row, or an answer that does not
// end it makes this fail.
func TestAnOutageIsTwoQuestionsInARow(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newPulse()
	for i, step := range []struct{ ok, changed, down bool }{
		{false, false, false},
		{true, false, false},
		{false, false, false},
		{false, true, true},
		{false, false, true},
		{true, true, false},
		{true, false, false},
		{false, false, false},
		{false, true, true},
	} {
		now := begin.Add(time.Duration(i) * time.Second)
		if changed := p.note(step.ok, now); changed != step.changed || p.known() != step.down {
			t.Errorf("step %d: changed %t, down %t", i, changed, p.known())
		}
		if i == 4 && !p.since.Equal(begin.Add(2*time.Second)) {
			t.Errorf("since %s", p.since)
		}
	}
}
