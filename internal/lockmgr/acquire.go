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
	token      string
	supersedes string // token of ours that may be replaced
	repeated   bool   // an earlier try with this token has an unknown outcome
}

// Acquire takes the lock of a run. It never waits for a busy lock, and asks Redis at most once, for at most the policy's
// renewal timeout. A lease that lingers in this process is handed out again without Redis, if the policy is the same and the
// status shows no writer after it; else a new one replaces it.
//
// Errors: *BusyError (retry after its delay), *UnavailableError (Redis cannot be used or its answer is unknown; retry after
// its delay, which repeats the same take), ErrClosed, ErrInvalidRequest. The lease must be ended with Release or Drop.
func (m *Manager) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	r = r.withDefaults()
	lease, t, err := m.begin(ctx, r)
	if lease != nil || err != nil {
		return lease, err
	}

	// Invariant: the validity counts from here, before anything is sent. Redis starts the TTL later than this, so the key
	// outlives the validity whatever the network does.
	sentAt := m.now()
	callCtx, cancel := context.WithTimeout(ctx, min(r.Policy.Renewal.Timeout, r.Policy.Validity()))
	fence, ok, err := m.store.Acquire(callCtx, r.RunUID, t.token, t.supersedes, r.Floor, r.Policy.TTL)
	cancel()

	lease, err = m.settle(ctx, r, t, reply{sentAt: sentAt, fence: fence, ok: ok, err: err})
	if err != nil {
		return nil, err
	}
	if m.isClosed() {
		lease.Drop(ctx)
		return nil, ErrClosed
	}
	return lease, nil
}

// begin decides what this process knows without Redis: a lingering lease, or a busy lock, or which take to try.
func (m *Manager) begin(ctx context.Context, req Request) (*Lease, take, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, take{}, ErrClosed
	}
	r := m.run(req.RunUID)
	if r.taking || (r.hold != nil && r.hold.user != nil) {
		return nil, take{}, m.busy(req, true)
	}
	if h := r.hold; h != nil {
		if h.reusable(req, m.now()) {
			return m.handOut(ctx, r, h, req), take{}, nil
		}
		m.detach(r)
	}
	r.taking = true
	m.active++
	m.reschedule(r)
	t := take{run: r, token: r.pending, supersedes: r.dead, repeated: r.pending != ""}
	if !t.repeated {
		t.token = m.opts.NewID()
	}
	return nil, t, nil
}

// reply is what came of a take.
type reply struct {
	sentAt time.Time
	fence  int64
	ok     bool
	err    error
}

// settle notes what came of a take.
func (m *Manager) settle(ctx context.Context, req Request, t take, got reply) (*Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	r := t.run
	r.taking = false
	validUntil := got.sentAt.Add(req.Policy.Validity())
	if got.err == nil && got.ok && !now.Before(validUntil) {
		got.err = errLate
	}
	switch {
	case got.err != nil:
		// The take may have happened, or happen yet. The token is kept, so that the next try finds its own lock.
		r.pending, r.forgetAt = t.token, now.Add(req.Policy.TTL)
		m.deactivate(r)
		m.opts.Metrics.taken(req, outcomeError, now.Sub(got.sentAt))
		delay := time.Duration(float64(unavailableDelay) * m.spread())
		return nil, &UnavailableError{RunUID: req.RunUID, cause: got.err, delay: delay}
	case !got.ok:
		m.deactivate(r)
		m.opts.Metrics.taken(req, outcomeBusy, now.Sub(got.sentAt))
		return nil, m.busy(req, false)
	}
	m.opts.Metrics.taken(req, outcomeAcquired, now.Sub(got.sentAt))
	r.pending, r.dead = "", ""
	r.hold = newHold(ctx, req, t, got)
	return m.handOut(ctx, r, r.hold, req), nil
}

func (m *Manager) busy(req Request, local bool) error {
	return &BusyError{RunUID: req.RunUID, Local: local, delay: req.Policy.BusyRetry.Wait(m.opts.Rand())}
}

// spread is uniform in [0.8, 1.2].
func (m *Manager) spread() float64 { return 1 - spreadFraction + 2*spreadFraction*m.opts.Rand() }

func (m *Manager) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// handOut gives a hold to a new user. Needs mu.
func (m *Manager) handOut(ctx context.Context, r *run, h *hold, req Request) *Lease {
	l := &Lease{manager: m, run: r, hold: h, since: m.now(), linger: req.Policy.Linger}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.user, h.request, h.lingerUntil = l, req, time.Time{}
	m.reschedule(r)
	return l
}

// String shows a request in logs and test failures.
func (r Request) String() string { return fmt.Sprintf("run %s, floor %d", r.RunUID, r.Floor) }
