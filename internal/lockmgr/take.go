// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"strings"
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
	forWaiters bool   // not for a caller, but for those in the queue
}

// prepare begins a take. Needs mu.
func (m *Manager) prepare(r *run, req Request) take {
	r.taking, r.offered, r.left = true, false, false
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

// ask tries a take in Redis, and once more where the lock is that of a process which is gone.
func (m *Manager) ask(ctx context.Context, t take) reply {
	got := m.askOnce(ctx, t)
	if got.err != nil || got.ok || t.request.Gone == nil {
		return got
	}
	process, _, ok := strings.Cut(got.grant.owner, ".")
	if !ok || process == m.process || !t.request.Gone(process) {
		return got
	}
	m.opts.Log.V(1).Info("Lock of a replica that is gone is replaced", "run", t.request.RunUID, "process", process)
	t.supersedes = got.grant.owner
	return m.askOnce(ctx, t)
}

func (m *Manager) askOnce(ctx context.Context, t take) reply {
	req := t.request
	c := claim{runUID: req.RunUID, token: t.token, supersedes: t.supersedes, floor: req.Floor, ttl: req.Policy.TTL}
	if req.waits() {
		c.process = m.process
	}
	// Invariant: the validity counts from here, before anything is sent. Redis starts the TTL later
	// than this, so the key outlives the validity whatever the network does.
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
		// The take may have happened, or happen yet. The token is kept, so that the next try finds
		// its own lock.
		r.pending, r.forgetAt = t.token, now.Add(req.Policy.TTL)
		m.dissolve(r)
		m.deactivate(r)
		m.opts.Metrics.failed(req, outcomeError, now.Sub(got.sentAt))
		delay := time.Duration(float64(unavailableDelay) * m.opts.spread())
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

// see notes who has the lock. While it is offered to somebody in the queue, whoever had it last is
// what is known.
func (r *run) see(g grant, now time.Time) {
	if g.owner == "" {
		return
	}
	r.seen = Owner{Token: g.owner}
	if g.left >= 0 {
		r.seen.Ends = now.Add(g.left).Round(0)
	}
}

// claim asks Redis for the lock on behalf of those who wait in this process, and offers it to the
// first of them. Not through their own calls: the offer of Redis stands for a second only, and the
// time of a busy process is no concern of the others in the queue.
func (m *Manager) claim(ctx context.Context, t take) {
	got := reply{sentAt: m.now(), err: ErrClosed}
	if m.slot(ctx) {
		got = m.ask(ctx, t)
		<-m.slots
	}
	m.mu.Lock()
	h, err := m.settle(ctx, t, got)
	if err == nil && !m.closed && m.offer(t.run, h) {
		m.opts.Metrics.handoffs.WithLabelValues("remote").Inc()
		m.mu.Unlock()
		return
	}
	if err != nil {
		giveUpVain(ctx, m, t.run, got)
		m.mu.Unlock()
		return
	}
	m.giveBack(ctx, t.run, h)
}

// giveUpVain gives up, behind the caller's back, what a take may have got that nobody here wants: a
// place in the queue where those who waited have left, and all that a take with an unknown outcome
// may have got, after Leave or Close. Needs mu.
func giveUpVain(ctx context.Context, m *Manager, r *run, got reply) {
	var vain []unused
	switch {
	case got.err != nil && r.left && r.pending != "":
		vain = []unused{{r.uid, r.pending}, {r.uid, ""}}
		r.dead, r.pending = r.pending, ""
	case got.err == nil && got.grant.queued && !r.hasWaiters(m.now()):
		vain = []unused{{r.uid, ""}}
	}
	if len(vain) > 0 && !m.gone {
		m.tasks.Go(func() { m.giveUp(context.WithoutCancel(ctx), vain) })
	}
}
