// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
)

// mutations: a line for each event that is refused, or each time that writes fail; one pause
// for all namespaces, or for what is refused and what fails; one that does not end; mayLog
// that forgets nothing.
func TestTheLogSaysOfANamespaceNowAndThenThatItsEventsAreNotWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(answering(http.StatusForbidden))
		w.begin()
		wants := func(lines int, after string) {
			t.Helper()
			if n := int(w.logged.Load()); n != lines {
				t.Errorf("%d lines after %s, want %d", n, after, lines)
			}
		}
		w.flood(normal, "a", 2, 50)
		settle(time.Second)
		wants(1, "a hundred that were refused")
		w.say(normal, "b", "run", "Told")
		settle(time.Second)
		wants(2, "one of another namespace")
		answers := 0
		w.answers(func(context.Context, *eventsv1.Event) error {
			if answers++; answers%2 == 1 {
				return status(http.StatusServiceUnavailable)
			}
			return nil
		})
		for i := range 10 {
			w.say(normal, "a", "run", fmt.Sprint("Kept", i))
			settle(10 * time.Second)
		}
		wants(3, "ten that were written at the second try")
		settle(logPause)
		w.answers(answering(http.StatusForbidden))
		w.flood(normal, "a", 2, 60)
		settle(time.Second)
		wants(4, "the pause")
		if n := len(w.Writer.logged); n != 1 {
			t.Errorf("%d are remembered", n)
		}
	})
}
