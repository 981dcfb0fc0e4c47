// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"slices"
	"time"
)

const (
	// maxWaiters bounds the waiters for one run in this process.
	maxWaiters = 1024
	// maxPasses is how many times in a row a lock goes from one waiter of this process to the
	// next while other processes wait: each of them spares two calls to Redis, and all of them
	// make others wait.
	maxPasses = 10
	// listenPause is the time between two connections for news. Whoever waits asks by itself every
	// second, so news are never urgent, and a Redis that refuses to be listened to must not be
	// asked all the time.
	listenPause = time.Second
	// contendedTime is how long after somebody wanted a lock others are believed to want it.
	contendedTime = time.Second
	// askTime is the longest time between two looks at whether a lock is free: news may be lost.
	askTime = time.Second
)

// waiter is somebody in this process who waits for the lock of a run.
type waiter struct {
	ctx     context.Context //nolint:containedctx // its values go with the calls that are made for it
	request Request
	until   time.Time // its place is kept until then
}

// waits says that whoever asks wants a place in the queue.
func (r Request) waits() bool { return r.Wake != nil && !r.Policy.Wait.Poll }

// place puts a waiter in the queue, or moves its end on if it is there. It says whether
// there was room.
func (r *run) place(ctx context.Context, req Request, now time.Time) bool {
	w := waiter{ctx: context.WithoutCancel(ctx), request: req, until: now.Add(max(req.Policy.Wait.Budget, offerTime))}
	for i := range r.waiters {
		if r.waiters[i].request.Waiter == req.Waiter {
			r.waiters[i] = w
			return true
		}
	}
	if len(r.waiters) >= maxWaiters {
		return false
	}
	r.waiters = append(r.waiters, w)
	return true
}

// remove takes a waiter out of the queue.
func (r *run) remove(name string) {
	r.waiters = slices.DeleteFunc(r.waiters, func(w waiter) bool { return w.request.Waiter == name })
}

// enqueue answers busy, with a place in the queue for who wants one. Needs mu.
func (m *Manager) enqueue(ctx context.Context, r *run, req Request, local bool) error {
	err := m.busy(r, req, local)
	err.Queued = req.waits() && r.place(ctx, req, m.now())
	return err
}

// askLater sets when the scheduler asks Redis again for those who wait. Needs mu.
func (m *Manager) askLater(r *run, got grant) {
	wait := time.Duration(float64(askTime) * (1 - spreadFraction*m.opts.Spread()))
	if got.offered > 0 {
		wait = min(wait, got.offered+time.Millisecond) // if the other does not come, the lock is there right then
	}
	if r.offered {
		wait = 0 // the offer overtook the reply
	}
	r.askAt = m.now().Add(wait)
}

// askNow has the scheduler ask Redis for those who wait. Needs mu.
func (m *Manager) askNow(r *run) {
	if r.hold == nil && !r.taking && r.hasWaiters(m.now()) && !m.closed {
		r.askAt = m.now()
		m.reschedule(r)
	}
}

// offer keeps a lock that nobody uses for the first waiter of this process, and wakes it; false:
// nobody waits. Needs mu.
func (m *Manager) offer(r *run, h *hold) bool {
	if !r.hasWaiters(m.now()) {
		h.offered = ""
		return false
	}
	w := r.waiters[0]
	r.waiters = r.waiters[1:]
	h.offered, h.lingerUntil = w.request.Waiter, m.now().Add(offerTime)
	m.reschedule(r)
	m.wakeUp(w.request.Wake)
	return true
}

// passOn gives a lock whose use ended to the next waiter of this process, unless others have waited
// long enough. Needs mu.
func (m *Manager) passOn(r *run, h *hold) bool {
	if h.others && h.passes >= maxPasses || !m.offer(r, h) {
		return false
	}
	h.passes++
	m.opts.Metrics.handoffs.WithLabelValues("local").Inc()
	return true
}

// dissolve sends all waiters away, to learn for themselves that Redis cannot be used. Needs mu.
func (m *Manager) dissolve(r *run) {
	for _, w := range r.waiters {
		m.wakeUp(w.request.Wake)
	}
	r.waiters, r.askAt = nil, time.Time{}
}

// tell wakes the user of a lease, whose Status or Err changed. Needs mu.
func (m *Manager) tell(h *hold) {
	if h.user != nil && h.request.Wake != nil {
		m.wakeUp(h.request.Wake)
	}
}

// wakeUp calls foreign code, so in a goroutine of its own. Needs mu. Nobody is woken after Close,
// which waits for goroutines.
func (m *Manager) wakeUp(wake func()) {
	if !m.closed {
		m.tasks.Go(wake)
	}
}

func (m *Manager) busy(r *run, req Request, local bool) *BusyError {
	return &BusyError{RunUID: req.RunUID, Local: local, Owner: r.seen, delay: req.Policy.BusyRetry.Wait(m.opts.Rand())}
}

// hasWaiters says whether somebody in this process still waits for the run. Needs mu.
func (r *run) hasWaiters(now time.Time) bool {
	r.waiters = slices.DeleteFunc(r.waiters, func(w waiter) bool { return !now.Before(w.until) })
	return len(r.waiters) > 0
}

// mustWait says that asking Redis would not help: the lock is used or being taken in this process,
// or kept for another waiter of it, or this process is in the queue already. Needs mu.
func (r *run) mustWait(req Request, now time.Time) bool {
	h := r.hold
	if h == nil {
		return r.taking || r.hasWaiters(now)
	}
	return h.user != nil || (h.offered != "" && h.offered != req.Waiter)
}
