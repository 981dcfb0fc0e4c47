// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/syncopate-dev/syncopate/internal/share"
)

// entry is an event that waits, and the room that it takes.
type entry struct {
	event    *eventsv1.Event
	room     *share.Room
	run      string    // for the room: what the event is about
	failedAt time.Time // when the API server first answered with an error
}

// line has the events of one namespace.
type line struct {
	namespace string
	waiting   []*entry
	failing   bool // its last write failed
}

// lines say which event is written next: namespaces have their turns one after the other. It is
// pure, and not safe for concurrent use.
//
// A line is in sound or in failing, but for the one that has its turn.
type lines struct {
	of             map[string]*line
	sound, failing []*line
	again          time.Time // when the next of failing has its turn
}

func newLines() *lines { return &lines{of: map[string]*line{}} }

// add puts an event at the end of the line of a namespace.
func (l *lines) add(namespace string, e *entry) {
	at := l.of[namespace]
	if at == nil {
		at = &line{namespace: namespace}
		l.of[namespace] = at
		l.sound = append(l.sound, at)
	}
	at.waiting = append(at.waiting, e)
}

// take gives a line its turn. Until over or failed is called, nobody else has one. Where it is nil,
// one has its turn after a rest; with no rest, nothing waits.
func (l *lines) take(now time.Time) (at *line, rest time.Duration) {
	due := len(l.failing) > 0 && !now.Before(l.again)
	switch {
	case due:
		at, l.failing = l.failing[0], l.failing[1:]
	case len(l.sound) > 0:
		at, l.sound = l.sound[0], l.sound[1:]
	case len(l.failing) > 0:
		return nil, l.again.Sub(now)
	}
	return at, 0
}

// over takes the first event out of the line that has its turn. If the API server took or refused
// it, the line is sound. The others that fail are tried without a rest, until one fails again.
func (l *lines) over(at *line, answered bool) {
	at.waiting[0] = nil
	at.waiting = at.waiting[1:]
	at.failing = at.failing && !answered
	if len(at.waiting) == 0 {
		delete(l.of, at.namespace)
		return
	}
	l.giveBack(at)
}

// failed ends the turn of a line whose event is to be tried again, after others of its line if
// toEnd says so.
func (l *lines) failed(at *line, toEnd bool, again time.Time) {
	if toEnd {
		first := at.waiting[0]
		at.waiting = append(at.waiting[1:], first)
	}
	at.failing, l.again = true, again
	l.giveBack(at)
}

func (l *lines) giveBack(at *line) {
	if at.failing {
		l.failing = append(l.failing, at)
		return
	}
	l.sound = append(l.sound, at)
}
