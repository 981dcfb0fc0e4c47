// SPDX-License-Identifier: Apache-2.0

package lockmgr

import "time"

// retryFraction of the TTL, or the interval if it is shorter, is the wait after a failed renewal,
// spread by +-spreadFraction.
const retryFraction = 0.1

// renew tries once to renew a lock.
func (m *Manager) renew(r *run, h *hold) {
	if !m.slot(h.ctx) {
		return
	}
	defer func() { <-m.slots }()
	m.mu.Lock()
	validUntil, unlocked, retaking, req := h.validUntil, h.unlocked, h.retaking, h.request
	m.mu.Unlock()
	if retaking {
		m.retake(r, h) // it may be ours again with a fence that we do not know: a renewal would not tell
		return
	}
	p := req.Policy

	// As for a take: the new validity counts from before the call, and nobody waits for it beyond
	// the old one.
	sentAt := m.now()
	timeout := p.Renewal.Timeout
	if !unlocked {
		timeout = min(timeout, validUntil.Sub(sentAt))
	}
	ctx, cancel := m.bounded(h.ctx, timeout)
	owner, err := m.store.Renew(ctx, r.uid, h.token, p.TTL)
	cancel()
	m.opts.Metrics.renewed(req, renewalOutcome(owner, err))
	if err == nil && !owner && p.Renewal.Continue {
		m.retake(r, h)
		return
	}
	m.noteRenewal(r, h, reply{sentAt: sentAt, ok: owner, err: err})
}

// retake takes a lock again that is not ours any more, for a policy that goes on: it works only
// while nobody else has the lock. The lease keeps its token and gets a higher fence, so whatever
// was written meanwhile under a lower one is no obstacle. Until a reply says how it went it is
// tried again, and nothing else is: the script finds its own lock by the token.
func (m *Manager) retake(r *run, h *hold) {
	m.mu.Lock()
	h.retaking, h.repeated = true, true // a late copy may bring the token back after the release
	req, fence := h.request, h.fence
	m.mu.Unlock()
	sentAt := m.now()
	ctx, cancel := m.bounded(h.ctx, req.Policy.Renewal.Timeout)
	defer cancel()
	got, err := m.store.Acquire(ctx, claim{
		runUID: r.uid, token: h.token, floor: max(req.Floor, fence), ttl: req.Policy.TTL,
	})
	m.opts.Metrics.renewed(req, renewalOutcome(got.fence > 0, err))
	m.noteRenewal(r, h, reply{sentAt: sentAt, grant: got, ok: got.fence > 0, err: err})
}

// noteRenewal applies the deadline rule to what came of a renewal, or of a lock that
// was taken again.
func (m *Manager) noteRenewal(r *run, h *hold, got reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.renewing = false
	if r.hold != h || h.lost != nil {
		return
	}
	m.countLease(h)
	switch {
	case m.checkDeadline(r, h):
		return
	case got.err != nil:
		m.noteFailure(r, h, got.err)
	case !got.ok:
		// Not a failure to be counted with others: somebody else may own the lock by now.
		m.lose(r, h, OwnershipLost)
	case !m.now().Before(got.sentAt.Add(h.request.Policy.Validity())):
		m.noteFailure(r, h, errLate)
	default:
		was := *h
		h.extend(got.sentAt)
		h.renewed = true
		h.fence = max(h.fence, got.grant.fence)
		m.reschedule(r)
		if !was.renewed || was.failures > 0 || was.unlocked {
			m.tell(h)
		}
		m.opts.Metrics.noteUnlocked(was.unlocked, false)
	}
}

// noteFailure counts a failed renewal; too many of them end the lease, unless the policy goes on.
func (m *Manager) noteFailure(r *run, h *hold, err error) {
	p := h.request.Policy
	h.failures++
	h.failure = Explain(err).Error()
	m.opts.Log.V(1).Info("Run lock not renewed", "runUID", r.uid, "fence", h.fence, "failures", h.failures, "cause", h.failure)
	if h.failures >= p.Renewal.MaxConsecutiveFailures && !h.goesOn() {
		m.lose(r, h, RenewalFailuresExceeded)
		return
	}
	wait := min(float64(p.TTL)*retryFraction, float64(p.Renewal.Interval))
	h.renewAt = m.now().Add(time.Duration(wait * m.opts.spread()))
	m.reschedule(r)
	if h.failures == 1 {
		m.tell(h)
	}
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
