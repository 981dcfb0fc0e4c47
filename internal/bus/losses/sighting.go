// SPDX-License-Identifier: Apache-2.0

package losses

import "time"

// Sighting is what was known of a stream when a request about it began. What comes of the request
// counts only if nothing was noticed meanwhile.
type Sighting struct {
	watch  *Watch
	stream string
	losses uint64
	last   uint64
}

// Intact says whether no loss of the stream was noticed since Begin.
func (s Sighting) Intact() bool {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	m := s.watch.marks[s.stream]
	return m == nil || m.losses == s.losses
}

// mark is what is known of the stream now; nil: a loss was noticed since Begin, or the stream is
// not watched. s.watch.mu is held.
func (s Sighting) mark() *mark {
	if m := s.watch.marks[s.stream]; m != nil && m.losses == s.losses {
		return m
	}
	return nil
}

// Stored takes the sequence that a new message got. Sequences only rise, so one that the stream had
// before the publish began was given twice. This finds a loss also if so much was published since
// that the stream is as long as before.
func (s Sighting) Stored(seq uint64) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	switch m := s.mark(); {
	case m == nil:
	case seq <= s.last:
		s.watch.notice(s.stream, m, "a sequence was given again", mark{last: seq})
	default:
		m.last = max(m.last, seq)
	}
}

// Read takes the sequence of a message that was read.
func (s Sighting) Read(seq uint64) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if m := s.mark(); m != nil {
		m.last = max(m.last, seq)
	}
}

// Look takes when the stream was created and its last sequence, as its leader says.
func (s Sighting) Look(created time.Time, last uint64) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	m, now := s.mark(), mark{created: created, last: last}
	switch {
	case m == nil:
	case !m.created.IsZero() && !m.created.Equal(now.created):
		s.watch.notice(s.stream, m, "the stream was made anew", now)
	case now.last < s.last:
		s.watch.notice(s.stream, m, "the end of the stream is gone", now)
	default:
		m.created, m.last = now.created, max(m.last, now.last)
	}
}
