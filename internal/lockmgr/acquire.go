package lockmgr

import (
	"context"
	"fmt"
	"time"
)

// unavailableDelay is the base of the wait before Redis is tried again; spread by +-spreadFraction.
const unavailableDelay = time.Second

// spreadFraction is how far waits for an unavailable Redis are spread to either side.
const spreadFraction = 0.2

// take is one try to take a lock in Redis.
type take struct {
	run        *run
	request    Request
	token      string
	supersedes string // token of ours that may be replaced
	repeated   bool   // an earlier try with this token has an unknown outcome, or the client may send it twice
	forWaiters bool   // not for a caller, but for those in line
}

// Acquire takes the lock of a run. It never waits for a busy lock, and asks Redis at most once, for at most the policy's
// renewal timeout. A lease that lingers in this process is handed out again without Redis, if the policy is the same and the
// status shows no writer after it; else a new one replaces it.
//
// When the lock is busy and the policy does not poll, a caller with a Request.Wake gets a place in line: see Request.Wake.
//
// Errors: *BusyError (retry after its delay), *UnavailableError (Redis cannot be used or its answer is unknown; retry after
// its delay, which repeats the same take), ErrClosed, ErrInvalidRequest. The lease must be ended with Release or Drop.
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
		m.mu.Unlock()
		return nil, err
	}
	m.giveBack(ctx, t.run, h)
	return nil, ErrClosed
}

// begin decides what this process knows without Redis: a lingering lease, or a busy lock, or which take to try.
func (m *Manager) begin(ctx context.Context, req Request) (*Lease, take, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, take{}, ErrClosed
	}
	m.listen(ctx)
	r := m.run(req.RunUID)
	h := r.hold
	switch {
	case m.mustWait(r, req):
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

// mustWait says that asking Redis would not help: the lock is used or being taken in this process, or kept for another waiter
// of it, or this process is in line already. Needs mu.
func (m *Manager) mustWait(r *run, req Request) bool {
	h := r.hold
	if h == nil {
		return r.taking || m.inLine(r)
	}
	return h.user != nil || (h.offered != "" && h.offered != req.Waiter)
}

// prepare begins a take. Needs mu.
func (m *Manager) prepare(r *run, req Request) take {
	r.taking, r.offered = true, false
	m.active++
	m.reschedule(r)
	t := take{run: r, request: req, token: r.pending, supersedes: r.dead, repeated: r.pending != "" || m.store.Repeats()}
	if t.token == "" {
		t.token = m.process + "." + m.opts.NewID()
	}
	return t
}

// reply is what came of a take.
type reply struct {
	sentAt time.Time
	grant  grant
	ok     bool // the lock is ours
	err    error
}

// ask tries a take in Redis.
func (m *Manager) ask(ctx context.Context, t take) reply {
	req := t.request
	c := claim{runUID: req.RunUID, token: t.token, supersedes: t.supersedes, floor: req.Floor, ttl: req.Policy.TTL}
	if req.waits() {
		c.process = m.process
	}
	// Invariant: the validity counts from here, before anything is sent. Redis starts the TTL later than this, so the key
	// outlives the validity whatever the network does.
	sentAt := m.now()
	ctx, cancel := m.bounded(ctx, min(req.Policy.Renewal.Timeout, req.Policy.Validity()))
	defer cancel()
	got, err := m.store.Acquire(ctx, c)
	return reply{sentAt: sentAt, grant: got, ok: got.fence > 0, err: err}
}

// settle notes what came of a take. Needs mu.
func (m *Manager) settle(ctx context.Context, t take, got reply) (*hold, error) {
	now, r, req := m.now(), t.run, t.request
	r.taking = false
	if got.err == nil && got.ok && !now.Before(got.sentAt.Add(req.Policy.Validity())) {
		got.err = errLate
	}
	switch {
	case got.err != nil:
		// The take may have happened, or happen yet. The token is kept, so that the next try finds its own lock.
		r.pending, r.forgetAt = t.token, now.Add(req.Policy.TTL)
		m.dissolve(r)
		m.deactivate(r)
		m.opts.Metrics.failed(req, outcomeError, now.Sub(got.sentAt))
		delay := time.Duration(float64(unavailableDelay) * m.spread())
		return nil, &UnavailableError{RunUID: req.RunUID, OneRun: concernsOneRun(got.err), cause: Explain(got.err), delay: delay}
	case !got.ok:
		m.opts.Metrics.failed(req, outcomeBusy, now.Sub(got.sentAt))
		r.see(got.grant, now)
		err := m.busy(r, req, false)
		err.Asked = true
		err.Queued = got.grant.queued && !m.closed && (t.forWaiters || r.place(ctx, req, now))
		m.askLater(r, got.grant)
		m.deactivate(r)
		return nil, err
	}
	m.opts.Metrics.acquisitions.WithLabelValues(outcomeAcquired).Inc()
	r.pending, r.dead, r.askAt, r.seen = "", "", time.Time{}, Owner{}
	r.hold = newHold(ctx, t, got)
	return r.hold, nil
}

// see notes who has the lock. While it is offered to somebody in line, whoever had it last is what is known.
func (r *run) see(g grant, now time.Time) {
	if g.owner == "" {
		return
	}
	r.seen = Owner{Token: g.owner}
	if g.left >= 0 {
		r.seen.Ends = now.Add(g.left).Round(0)
	}
}

func (m *Manager) busy(r *run, req Request, local bool) *BusyError {
	return &BusyError{RunUID: req.RunUID, Local: local, Owner: r.seen, delay: req.Policy.BusyRetry.Wait(m.opts.Rand())}
}

// spread is uniform in [0.8, 1.2].
func (m *Manager) spread() float64 { return 1 - spreadFraction + 2*spreadFraction*m.opts.Spread() }

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
