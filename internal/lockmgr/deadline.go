// SPDX-License-Identifier: Apache-2.0

package lockmgr

// checkDeadline says whether a hold is lost because its validity is over, and if so notes the loss.
// Where the policy goes on it notes that instead. Needs mu.
//
// Whoever looks first notes it, the scheduler's timer, a user who asks Err, or a renewal that
// came back: a starved goroutine or a process that was paused must not see a lease as valid
// because nobody ticked.
func (m *Manager) checkDeadline(r *run, h *hold) bool {
	if r.hold != h || h.lost != nil || h.unlocked || m.now().Before(h.validUntil) {
		return false
	}
	if !h.goesOn() {
		m.lose(r, h, LeaseDeadlineReached)
		return true
	}
	h.unlocked = true
	m.opts.Metrics.noteUnlocked(false, true)
	m.opts.Log.Info("Run goes on without its lock", "runUID", r.uid, "fence", h.fence, "policy", h.request.PolicyName, "cause", h.failure)
	m.reschedule(r)
	m.tell(h)
	return false
}

// lose notes that a hold is lost: its user is told and keeps the run busy in this process until the
// work has returned. A lingering hold just goes, since nobody worked under it. Needs mu.
func (m *Manager) lose(r *run, h *hold, reason Reason) {
	m.countLease(h)
	m.opts.Metrics.noteUnlocked(h.unlocked, false)
	h.lost, h.unlocked = &LostError{Reason: reason, RunUID: r.uid, Fence: h.fence}, false
	if h.user == nil {
		m.detach(r)
		m.askNow(r)
		return
	}
	h.end()
	m.opts.Metrics.lost(h.request, string(reason))
	m.opts.Log.Info("Run lock lost", "runUID", r.uid, "fence", h.fence, "reason", reason, "policy", h.request.PolicyName)
	h.user.fail(h.lost)
	m.reschedule(r)
	m.tell(h)
}

// fail ends the use of the lease for the given reason, unless it ended before. Needs mu. Cancelling
// under the mutex makes Err and the context agree at all times; it runs no foreign code,
// context.AfterFunc has goroutines of its own.
func (l *Lease) fail(err error) {
	if l.err == nil {
		l.err = err
	}
	l.cancel(l.err)
}

// countLease counts the time of the lease in use since it was last counted. It is called at each
// renewal, so the figures of a lease that lives for hours are of now. Needs mu.
func (m *Manager) countLease(h *hold) {
	now := m.now()
	if h.user == nil || h.lost != nil || !now.After(h.countedUntil) {
		return
	}
	total := now.Sub(h.countedUntil)
	valid := min(total, max(0, h.validUntil.Sub(h.countedUntil)))
	m.opts.Metrics.leased(h.request, valid, total-valid)
	h.countedUntil = now
}
