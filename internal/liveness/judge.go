// SPDX-License-Identifier: Apache-2.0

package liveness

import "time"

// again is how often jobs must be delivered once more, with none done, before it means something: a
// worker may die once.
const again = 2

// moment is how long a worker that did something counts as being there. It adds to the time in
// which one that is gone is told.
const moment = time.Second

// memory is what earlier answers about a topic said. All times are ours. The zero value is that of
// a topic that was never asked about.
type memory struct {
	last       Workers
	any        bool      // there was an answer: last is it
	signAt     time.Time // when workers gave their last sign
	heardAt    time.Time // the same, but that jobs were given out again and again is none: whoever has one may be as silent as those before
	movedAt    time.Time // when a job was last seen to be done, or given to a worker for the first time; or the first answer
	deliveries uint64    // at movedAt
	emptyAt    time.Time // when no job was queued the last time; zero: never
}

// verdict is what one answer means.
type verdict struct {
	kind  Kind
	since time.Time // since when it is so, as far as was seen
}

// judge says what an answer means after those before it, and remembers it. patience is how long
// nothing may move behind busy workers.
func (m *memory) judge(w Workers, now time.Time, patience time.Duration) verdict {
	if !w.Exists {
		*m = memory{}
		return verdict{NoConsumer, now}
	}
	moved := m.see(w, now)
	if !m.somebody(now, moved) {
		return verdict{NobodyPulls, now}
	}
	since, is := m.stands(now, patience)
	switch {
	case !is || moved:
		return verdict{Pulling, now}
	case m.full(now):
		return verdict{Full, since}
	default:
		return verdict{Stuck, since}
	}
}

// full tells that jobs wait only because as many are with workers as may be: these say that they
// are in progress, and none is given out again and again.
func (m *memory) full(now time.Time) bool {
	w := m.last
	return w.MaxBusy > 0 && w.Busy >= w.MaxBusy && w.Queued > 0 && !m.repeated() && now.Sub(m.heardAt) <= w.AckWait*2/5
}

// repeated tells that jobs are given out again and again, and none is done.
func (m *memory) repeated() bool { return m.last.Deliveries-m.deliveries >= again }

// stands tells that what waits does not move, and since when.
func (m *memory) stands(now time.Time, patience time.Duration) (since time.Time, is bool) {
	w, still := m.last, m.movedAt
	repeated := m.repeated()
	if !repeated && m.emptyAt.After(still) {
		still = m.emptyAt
	}
	switch {
	case w.Pulling > 0 && w.Queued > 0, (w.Queued > 0 || repeated) && now.Sub(still) > patience:
		return still, true
	default:
		return m.heardAt, m.hangs(now)
	}
}

// hangs tells that all jobs are with workers, and none says that one is in progress.
func (m *memory) hangs(now time.Time) bool {
	return m.last.Queued == 0 && m.last.Busy > 0 && now.Sub(m.heardAt) > m.last.AckWait*2/5
}

// somebody tells that there is a worker: one pulls, or has a job and says so, or did something a
// moment ago, as those that do short jobs, of which a look may see neither a request nor a job.
func (m *memory) somebody(now time.Time, moved bool) bool {
	w := m.last
	acted := w.LastSign
	if w.LastAck.After(acted) {
		acted = w.LastAck
	}
	return w.Pulling > 0 || w.Busy > 0 && !m.silent(now) || moved && w.At.Sub(acted) < moment
}

// see remembers an answer, and tells whether jobs moved since the one before: one is done, or was
// given to a worker for the first time. What is only given out again does not count, or a job that
// kills its workers would look like progress.
func (m *memory) see(w Workers, now time.Time) (moved bool) {
	anew := !m.any || w.Deliveries < m.last.Deliveries // or the consumer was made again
	moved = !anew && (w.Reached > m.last.Reached || w.LastAck.After(m.last.LastAck))
	if anew || !w.LastSign.Equal(m.last.LastSign) {
		m.signAt = signAt(w, now)
	}
	if anew || moved {
		m.movedAt, m.deliveries = now, w.Deliveries
	}
	m.hear(w)
	if w.Queued == 0 {
		m.emptyAt = now
	}
	m.last, m.any = w, true
	return moved
}

// hear takes the last sign, unless it may be no more than that jobs were given out again and again.
func (m *memory) hear(w Workers) {
	if w.Deliveries == m.last.Deliveries || w.Deliveries-m.deliveries < again {
		m.heardAt = m.signAt
	}
}

// signAt is when workers gave their last sign, by our clock.
func signAt(w Workers, now time.Time) time.Time {
	if w.LastSign.IsZero() {
		return now // the server has just started, and workers get their time
	}
	return now.Add(-max(0, w.At.Sub(w.LastSign)))
}

// silent tells that no worker gave a sign for longer than the protocol allows, a third of AckWait,
// and a little for late ones.
func (m *memory) silent(now time.Time) bool { return now.Sub(m.signAt) > m.last.AckWait*2/5 }
