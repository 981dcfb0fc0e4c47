// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"container/heap"
	"time"
)

// run is what the manager knows about the lock of one run. It exists while there is
// something to know.
type run struct {
	uid    string
	taking bool  // a take is under way
	hold   *hold // nil: not held

	waiters []waiter  // in the queue in this process
	askAt   time.Time // when Redis is asked for them; zero: their turn comes with the end of a hold or a take
	offered bool      // while taking: Redis offered the lock
	left    bool      // while taking: what comes of it is to be given up

	// seen is who had the lock when Redis was last asked for it in vain.
	seen Owner

	// contendedUntil is up to when others are believed to want the lock, though they are in no
	// queue. While they poll, a lock that lingers makes them come in vain.
	contendedUntil time.Time

	// Tokens that Redis may or may not know as the owner, remembered until forgetAt, when the TTL
	// has settled the matter.
	pending  string // of a take whose outcome is unknown: the next take repeats it
	dead     string // of a lease that is over, whose release may not have happened: the next take replaces it
	forgetAt time.Time

	due   time.Time // of its event in the queue
	index int       // in the queue; -1: not in it
}

// run returns the record of a run, a new one if there is none. Needs mu.
func (m *Manager) run(uid string) *run {
	r, ok := m.runs[uid]
	if !ok {
		r = &run{uid: uid, index: -1}
		m.runs[uid] = r
	}
	return r
}

// detach ends the hold of a run. Its token stays remembered as dead, since whether Redis forgot it
// is not yet known. It is where Redis said so, and no take was sent since. Needs mu.
func (m *Manager) detach(r *run) {
	h := r.hold
	h.end()
	r.hold = nil
	if h.lost == nil || h.lost.Reason != OwnershipLost || h.retaking {
		r.dead, r.forgetAt = h.token, m.now().Add(h.request.Policy.TTL)
	}
	r.askAt = time.Time{} // askNow sets it, once the lock is given back
	m.deactivate(r)
}

// deactivate notes that a run is neither held nor being taken any more. Needs mu.
func (m *Manager) deactivate(r *run) {
	m.active--
	m.reschedule(r)
	m.noteDrained()
}

// noteDrained wakes Close when nothing is held any more. Needs mu. active only falls once closed is
// set, so it gets to 0 once.
func (m *Manager) noteDrained() {
	if m.closed && m.active == 0 {
		close(m.drained)
	}
}

// reschedule puts the next event of a run in its place, and drops the record of a run about which
// nothing is known. Needs mu.
func (m *Manager) reschedule(r *run) {
	r.due = r.nextEvent()
	switch {
	case r.due.IsZero() && r.index >= 0:
		heap.Remove(&m.queue, r.index)
	case r.due.IsZero():
	case r.index >= 0:
		heap.Fix(&m.queue, r.index)
	default:
		heap.Push(&m.queue, r)
	}
	if r.idle() {
		delete(m.runs, r.uid)
	}
	m.wakeScheduler()
}

// idle says that there is nothing to know about the run.
func (r *run) idle() bool {
	return !r.taking && r.hold == nil && r.pending == "" && r.dead == "" && len(r.waiters) == 0 && r.contendedUntil.IsZero()
}

// nextEvent is when something is to be done about the run without anybody asking; zero: never.
func (r *run) nextEvent() time.Time {
	switch {
	case r.hold != nil:
		return r.hold.nextEvent()
	case r.taking, r.idle():
		return time.Time{}
	}
	var next time.Time
	if r.pending != "" || r.dead != "" {
		next = r.forgetAt
	}
	if len(r.waiters) > 0 {
		next = earliest(next, r.askAt)
	}
	return earliest(next, r.contendedUntil)
}

// wakeScheduler makes sure that the scheduler wakes in time for the first event. A timer that
// is too early does no harm, so that short leases, whose events all lie beyond it, cost no
// wake-up. Needs mu.
func (m *Manager) wakeScheduler() {
	if len(m.queue) == 0 || (!m.armed.IsZero() && !m.queue[0].due.Before(m.armed)) {
		return
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
