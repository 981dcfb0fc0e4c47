// SPDX-License-Identifier: Apache-2.0

package losses

import (
	"sync"
	"time"
)

// Watch is what this process knows of some streams. Its methods may be called concurrently.
type Watch struct {
	noticed chan struct{}
	onLoss  func(stream, evidence string)

	mu    sync.Mutex
	total uint64
	marks map[string]*mark
}

// mark is what this process knows of one stream.
type mark struct {
	losses  uint64    // how often it was not what it had been
	created time.Time // tells the stream from another of its name; zero: not known
	last    uint64    // highest sequence that it is known to have had
	// came are the latest messages that were delivered, each in the place of its
	// sequence; nil: none.
	came []arrival
}

// arrival is a message that was delivered.
type arrival struct {
	seq      uint64
	storedAt time.Time
}

// rememberedArrivals is how many messages that were delivered are known, in 128 KiB. It is a lost
// end of that many results that is noticed although as many were stored before the next look.
const rememberedArrivals = 4096

// New watches some streams. onLoss is called for each loss when it is noticed; it must not call the
// Watch.
func New(onLoss func(stream, evidence string), streams ...string) *Watch {
	w := &Watch{noticed: make(chan struct{}, 1), onLoss: onLoss, marks: map[string]*mark{}}
	for _, s := range streams {
		w.marks[s] = &mark{}
	}
	return w
}

// Count is how many losses were noticed. It never falls.
func (w *Watch) Count() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Noticed has a value when Count has grown since it was last received from. It is for one receiver.
func (w *Watch) Noticed() <-chan struct{} { return w.noticed }

// Begin begins a request about a stream. Of a stream that is not watched nothing is ever noticed.
func (w *Watch) Begin(stream string) Sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sighting(stream)
}

// sighting is what is known of a stream now. w.mu is held.
func (w *Watch) sighting(stream string) Sighting {
	s := Sighting{watch: w, stream: stream}
	if m := w.marks[stream]; m != nil {
		s.losses, s.last = m.losses, m.last
	}
	return s
}

// Delivered takes a message that came, and gives its sighting. If another came with the same
// sequence, one that was stored at another time, the sequence was given twice.
func (w *Watch) Delivered(stream string, seq uint64, storedAt time.Time) Sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.marks[stream]; m != nil {
		w.delivered(stream, m, seq, storedAt)
	}
	return w.sighting(stream)
}

// delivered judges a message that came. w.mu is held.
func (w *Watch) delivered(stream string, m *mark, seq uint64, storedAt time.Time) {
	if storedAt.Before(m.created) {
		return // on its way when its stream was made anew
	}
	if m.came == nil {
		m.came = make([]arrival, rememberedArrivals)
	}
	place := &m.came[seq%rememberedArrivals]
	if place.seq == seq && !place.storedAt.Equal(storedAt) {
		w.notice(stream, m, "a sequence was given again", mark{last: seq})
		return
	}
	*place, m.last = arrival{seq, storedAt}, max(m.last, seq)
}

// notice begins anew with what is known of the stream as it is now. What evidence other than a look
// does not tell stays unknown until the next look, so that one loss is counted once. w.mu is held.
func (w *Watch) notice(stream string, m *mark, evidence string, now mark) {
	now.losses = m.losses + 1
	*m = now
	w.total++
	w.onLoss(stream, evidence)
	select {
	case w.noticed <- struct{}{}:
	default:
	}
}
