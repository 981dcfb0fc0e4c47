package lockmgr

import (
	"context"
	"time"
)

// retryFraction of the TTL is the wait after a failed renewal, spread by +-spreadFraction.
const retryFraction = 0.1

// renew tries once to renew a lock.
func (m *Manager) renew(r *run, h *hold) {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-h.ctx.Done():
		return
	}
	m.mu.Lock()
	validUntil, p := h.validUntil, h.request.Policy
	m.mu.Unlock()

	// As for a take: the new validity counts from before the call, and nobody waits for it beyond the old one.
	sentAt := m.now()
	ctx, cancel := context.WithTimeout(h.ctx, min(p.Renewal.Timeout, validUntil.Sub(sentAt)))
	defer cancel()
	owner, err := m.store.Renew(ctx, r.uid, h.token, p.TTL)
	m.noteRenewal(r, h, sentAt, owner, err)
}

// noteRenewal applies the deadline rule to what came of a renewal that was sent at sentAt.
func (m *Manager) noteRenewal(r *run, h *hold, sentAt time.Time, owner bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.renewing = false
	if r.hold != h || h.lost != nil {
		return
	}
	m.opts.Metrics.renewals.WithLabelValues(renewalOutcome(owner, err), h.request.PolicyName).Inc()
	switch {
	case m.checkDeadline(r, h):
		return
	case err != nil:
		m.noteFailure(r, h, err)
	case !owner:
		// Not a failure to be counted with others: somebody else may own the lock by now.
		m.lose(r, h, OwnershipLost)
	default:
		h.failures, h.renewed = 0, true
		h.extend(sentAt)
		m.reschedule(r)
	}
}

func (m *Manager) noteFailure(r *run, h *hold, err error) {
	p := h.request.Policy
	h.failures++
	m.opts.Log.V(1).Info("Run lock not renewed", "runUID", r.uid, "fence", h.fence, "failures", h.failures, "cause", err.Error())
	if h.failures >= p.Renewal.MaxConsecutiveFailures {
		m.lose(r, h, RenewalFailuresExceeded)
		return
	}
	h.renewAt = m.now().Add(time.Duration(float64(p.TTL) * retryFraction * m.spread()))
	m.reschedule(r)
}

func renewalOutcome(owner bool, err error) string {
	switch {
	case err != nil:
		return "error"
	case !owner:
		return "not_owner"
	default:
		return "ok"
	}
}

// checkDeadline says whether the validity of a hold is over, and if so notes the loss. Needs mu.
//
// Whoever looks first notes it, the scheduler's timer, a user who asks Err, or a renewal that came back: a starved goroutine
// or a process that was paused must not see a lease as valid because nobody ticked.
func (m *Manager) checkDeadline(r *run, h *hold) bool {
	if r.hold != h || h.lost != nil || m.now().Before(h.validUntil) {
		return false
	}
	m.lose(r, h, LeaseDeadlineReached)
	return true
}

// lose notes that a hold is lost: its user is told and keeps the run busy in this process until the work has returned. A
// lingering hold just goes, since nobody worked under it. Needs mu.
func (m *Manager) lose(r *run, h *hold, reason Reason) {
	h.lost = &LostError{Reason: reason, RunUID: r.uid, Fence: h.fence}
	if h.user == nil {
		m.detach(r)
		return
	}
	h.end()
	m.opts.Metrics.abandoned.WithLabelValues(string(reason), h.request.PolicyName, h.request.Path).Inc()
	m.opts.Log.Info("Run lock lost", "runUID", r.uid, "fence", h.fence, "reason", reason, "policy", h.request.PolicyName)
	h.user.fail(h.lost)
	m.reschedule(r)
}
