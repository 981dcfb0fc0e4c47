// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"container/heap"
	"context"
	"time"
)

// eventQueue is the runs that wait for an event, earliest first: a container/heap.
type eventQueue []*run

// Len implements heap.Interface.
func (q eventQueue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q eventQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q eventQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) {
	r, _ := x.(*run)
	r.index = len(*q)
	*q = append(*q, r)
}

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	r.index = -1
	return r
}

// schedule runs the events of all runs until Close. It makes no call itself, so that nothing delays
// a deadline: one slow Redis must not keep 10,000 leases from being fenced.
func (m *Manager) schedule() {
	for {
		var timer <-chan time.Time
		stopTimer := func() bool { return false }
		if wait, ok := m.runDue(); ok {
			t := m.opts.Clock.NewTimer(wait)
			timer, stopTimer = t.C(), t.Stop
		}
		select {
		case <-timer:
		case <-m.wake:
		case <-m.stop:
			stopTimer()
			return
		}
		stopTimer()
	}
}

// runDue runs the events that are due, and returns how long to wait for the next one; false:
// there is none.
func (m *Manager) runDue() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	// While armed lies in the past nobody wakes this goroutine for the events which it adds itself.
	m.armed = now
	for len(m.queue) > 0 && !m.queue[0].due.After(now) {
		m.fire(m.queue[0], now)
	}
	if len(m.queue) == 0 {
		m.armed = time.Time{}
		return 0, false
	}
	m.armed = m.queue[0].due
	return m.armed.Sub(now), true
}

// fire does what is due for a run. Needs mu.
//
// Invariant: every branch moves the run's next event beyond now, else runDue would not end.
func (m *Manager) fire(r *run, now time.Time) {
	h := r.hold
	if h == nil {
		m.fireFree(r, now)
		return
	}
	m.checkDeadline(r, h)
	switch {
	case r.hold != h || h.lost != nil:
	case h.user == nil && !now.Before(h.lingerUntil):
		m.endLinger(r, h)
	case !h.renewing && !now.Before(h.renewAt):
		h.renewing = true
		m.tasks.Go(func() { m.renew(r, h) })
		m.reschedule(r)
	default:
		m.reschedule(r)
	}
}

// fireFree does what is due for a run that is not held. Needs mu.
func (m *Manager) fireFree(r *run, now time.Time) {
	if !now.Before(r.forgetAt) {
		r.pending, r.dead = "", ""
	}
	if !now.Before(r.contendedUntil) {
		r.contendedUntil = time.Time{}
	}
	if r.hasWaiters(m.now()) && !r.askAt.IsZero() && !now.Before(r.askAt) {
		first := r.waiters[0]
		t := m.prepare(r, first.request)
		t.forWaiters = true
		m.tasks.Go(func() { m.claim(first.ctx, t) })
		return
	}
	m.reschedule(r)
}

// endLinger ends a hold which nobody wants to use. A waiter of this process who was offered it and
// did not come loses its turn. Needs mu.
func (m *Manager) endLinger(r *run, h *hold) {
	if h.offered != "" {
		m.opts.Metrics.handoffs.WithLabelValues("unused").Inc()
		if m.offer(r, h) {
			return
		}
	}
	m.detach(r)
	m.tasks.Go(func() { m.free(context.WithoutCancel(h.ctx), r, h) })
}

var _ heap.Interface = (*eventQueue)(nil)

// start starts the scheduler, and listens to the news for this process, once. Needs mu.
func (m *Manager) start(ctx context.Context) {
	if m.started {
		return
	}
	m.started = true
	m.tasks.Go(m.schedule)
	m.listen(ctx)
}
