// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"strings"
	"testing"
	"time"
)

// mutation: a line that stays failing after a success, or an event of what is gone that counts as
// one, makes this fail; so does a rest that keeps back lines that are sound, or that is not kept.
func TestLinesThatFailHaveFewerTurnsUntilTheyWorkAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLines()
	for range 6 {
		l.add("a", &entry{})
		l.add("b", &entry{})
	}
	var turns []string
	turn := func(end func(at *line)) {
		at, rest := l.take(now)
		if at == nil {
			turns = append(turns, rest.String())
			return
		}
		turns = append(turns, at.namespace)
		end(at)
	}
	written := func(at *line) { l.over(at, true) }
	fails := func(at *line) { l.failed(at, false, now.Add(time.Second)) }
	turn(fails) // a
	turn(written)
	turn(written) // b again: a rests
	now = now.Add(time.Second)
	turn(func(at *line) { l.over(at, false) }) // a, whose event is about what is gone
	turn(fails)                                // a again: that said nothing of the API server
	turn(written)
	now = now.Add(time.Second)
	turn(written) // a works again
	for range 6 {
		turn(written) // in turn, until b has no more
	}
	turn(fails) // a
	turn(written)
	if got, want := strings.Join(turns, " "), "a b b a a b a b a b a b a a 1s"; got != want {
		t.Errorf("turns: %s, want %s", got, want)
	}
}
