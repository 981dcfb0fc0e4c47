// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"hash/maphash"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

const (
	// saidPlaces is how many events are remembered as said: 360 KiB.
	saidPlaces = 4096
	// sayAgain is when an event may be said again. The API server forgets it after an hour, and
	// what still is to be said should be seen then.
	sayAgain = 30 * time.Minute
)

// words are what two events have in common that say the same. The version of the object is among
// them, so what happens twice to an object that is written each time is said twice.
type words struct {
	kind, reason, action, note string
	regarding, related         corev1.ObjectReference
}

func wordsOf(e *eventsv1.Event) words {
	w := words{kind: e.Type, reason: e.Reason, action: e.Action, note: e.Note, regarding: e.Regarding}
	if e.Related != nil {
		w.related = *e.Related
	}
	return w
}

// said remembers the last events by a hash. It is not safe for concurrent use.
type said struct {
	seed  maphash.Seed
	at    map[uint64]time.Time
	order []uint64 // a ring: the oldest is at next, once it is full
	next  int
}

func newSaid() *said { return &said{seed: maphash.MakeSeed(), at: map[uint64]time.Time{}} }

// before says whether an event was said a short while ago.
func (s *said) before(w *words, now time.Time) bool {
	at, known := s.at[maphash.Comparable(s.seed, *w)]
	return known && now.Sub(at) < sayAgain
}

// remember puts an event in the place of the oldest one.
func (s *said) remember(w *words, now time.Time) {
	sum := maphash.Comparable(s.seed, *w)
	_, known := s.at[sum]
	s.at[sum] = now
	switch {
	case known:
	case len(s.order) < saidPlaces:
		s.order = append(s.order, sum)
	default:
		delete(s.at, s.order[s.next])
		s.order[s.next] = sum
		s.next = (s.next + 1) % saidPlaces
	}
}
