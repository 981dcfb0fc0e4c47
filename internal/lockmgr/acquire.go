// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"fmt"
	"time"
)

// Acquire takes the lock of a run. It never waits for a busy lock, and asks Redis at most once, or
// twice where the holder is gone; each time for at most the policy's renewal timeout. A lease that
// lingers in this process is handed out again without Redis, if the policy is the same and the
// status shows no writer after it; else a new one replaces it.
//
// When the lock is busy and the policy does not poll, a caller with a Request.Wake gets a place in
// the queue: see Request.Wake.
//
// Errors: *BusyError (retry after its delay), *UnavailableError (Redis cannot be used or its answer
// is unknown; retry after its delay, which repeats the same take), ErrClosed, ErrInvalidRequest.
// The lease must be ended with Release or Drop.
func (m *Manager) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	r = r.withDefaults(m.now())
	lease, t, err := m.begin(ctx, r)
	if lease != nil || err != nil {
		return lease, err
	}
	got := m.ask(ctx, t)

	m.mu.Lock()
	h, err := m.settle(ctx, t, got)
	if err == nil && !m.closed {
		defer m.mu.Unlock()
		m.opts.Metrics.had(r, m.now())
		lease = m.handOut(ctx, t.run, h, r)
		lease.fresh = true
		return lease, nil
	}
	if err != nil {
		giveUpVain(ctx, m, t.run, got)
		m.mu.Unlock()
		return nil, err
	}
	m.giveBack(ctx, t.run, h)
	return nil, ErrClosed
}

// begin decides what this process knows without Redis: a lingering lease, or a busy lock, or which
// take to try.
func (m *Manager) begin(ctx context.Context, req Request) (*Lease, take, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, take{}, ErrClosed
	}
	m.start(ctx)
	r := m.run(req.RunUID)
	h := r.hold
	switch {
	case r.mustWait(req, m.now()):
		local := r.taking || h != nil
		return nil, take{}, m.enqueue(ctx, r, req, local)
	case h != nil && h.reusable(req, m.now()):
		if h.offered != "" {
			m.opts.Metrics.had(req, m.now())
		}
		return m.handOut(ctx, r, h, req), take{}, nil
	case h != nil:
		m.detach(r)
	}
	return nil, m.prepare(r, req), nil
}

// handOut gives a hold to a new user. Needs mu.
func (m *Manager) handOut(ctx context.Context, r *run, h *hold, req Request) *Lease {
	r.remove(req.Waiter)
	l := &Lease{manager: m, run: r, hold: h, since: m.now(), linger: req.Policy.Linger}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.user, h.request, h.lingerUntil, h.offered, h.countedUntil = l, req, time.Time{}, "", l.since
	m.reschedule(r)
	return l
}

// String shows a request in logs and test failures.
func (r Request) String() string { return fmt.Sprintf("run %s, floor %d", r.RunUID, r.Floor) }
