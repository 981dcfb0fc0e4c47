// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// finish ends the use of a lease. If the hold may be used again it goes to the next in this
// process, or lingers.
func (m *Manager) finish(ctx context.Context, l *Lease, reuse bool) {
	m.mu.Lock()
	if l.done {
		m.mu.Unlock()
		return
	}
	l.done = true
	r, h := l.run, l.hold
	m.checkDeadline(r, h)
	m.countLease(h)
	now := m.now()
	lost := h.lost != nil
	m.opts.Metrics.used(h.request, lost, now.Sub(l.since), h.validUntil.Sub(now))
	l.fail(ErrReleased)
	m.opts.Metrics.noteUnlocked(h.unlocked, false)
	h.user, h.unlocked = nil, false
	switch {
	case lost, m.closed, !reuse: // a lost lock is not freed: Redis is most likely out of reach, and the next take replaces the token
	case m.passOn(r, h):
		m.mu.Unlock()
		return
	case l.linger > 0 && !h.others && (!h.request.Policy.Wait.Poll || !now.Before(r.contendedUntil)):
		h.lingerUntil = now.Add(l.linger)
		m.reschedule(r)
		m.mu.Unlock()
		return
	}
	if lost {
		m.detach(r)
		m.askNow(r)
		m.mu.Unlock()
		return
	}
	m.giveBack(ctx, r, h)
}

// giveBack ends a hold and frees its lock: in the caller, or, where Redis most likely does not
// answer, behind its back. Needs mu, and unlocks it.
func (m *Manager) giveBack(ctx context.Context, r *run, h *hold) {
	ctx = context.WithoutCancel(ctx)
	failing := h.failures > 0
	m.detach(r)
	if m.gone { // Close does not wait any more; the lock ends with its TTL
		m.mu.Unlock()
		return
	}
	m.tasks.Add(1) // Close waits for the release too
	m.mu.Unlock()
	free := func() {
		defer m.tasks.Done()
		m.free(ctx, r, h)
	}
	if failing {
		go free()
		return
	}
	free()
}

// free frees the lock of a hold that is detached. If that fails it is tried once more, at once, or
// another replica would wait for the TTL because a connection broke; not by the caller, whom a
// Redis that hangs must not keep twice as long.
func (m *Manager) free(ctx context.Context, r *run, h *hold) {
	err := m.release(ctx, r.uid, h)
	if err == nil {
		m.freed(r, h, nil)
		return
	}
	m.tasks.Go(func() { m.freed(r, h, m.release(ctx, r.uid, h)) })
}

func (m *Manager) release(ctx context.Context, runUID string, h *hold) error {
	ctx, cancel := m.bounded(ctx, h.request.Policy.Renewal.Timeout)
	defer cancel()
	_, err := m.store.Release(ctx, runUID, h.token)
	return err
}

// freed notes what came of a release.
func (m *Manager) freed(r *run, h *hold, err error) {
	if err != nil {
		m.opts.Log.V(1).Info("Run lock not released, it ends with its TTL", "runUID", r.uid, "cause", err.Error())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && r.dead == h.token && !h.repeated {
		r.dead = ""
		m.reschedule(r)
	}
	m.askNow(r)
}

// Close gives back all locks: lingering ones at once, those in use as soon as they are released;
// their contexts end with ErrClosed. Acquire fails from now on. Close waits for all of it, and for
// all goroutines; when ctx ends first it returns its error, cuts off all calls, and the rest ends
// with the TTL. A second call does nothing.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	left := disown(m, func(string) bool { return true }, ErrClosed)
	m.closed = true
	m.noteDrained()
	m.mu.Unlock()

	m.giveUp(ctx, left)
	var err error
	select {
	case <-m.drained:
	case <-ctx.Done():
		err = fmt.Errorf("close lock manager: locks still in use: %w", context.Cause(ctx))
		m.die()
	}
	m.mu.Lock()
	m.gone = true
	m.mu.Unlock()
	close(m.stop)
	m.tasks.Wait()
	m.die()
	return err
}

// Leave gives up what this process has of the locks of runs and does not use: places in the queue,
// tokens of takes whose outcome is unknown, lingering locks, and those that are kept for somebody
// who waits here. It is for runs that another process drives from now on: else that would wait a
// second for a lock which is offered to this process, where nobody uses it. Waiters are not told.
// Locks are given back behind the caller's back; the rest is done when Leave returns, unless ctx
// ends before: then it ends by itself within the TTL, or the ticket's time.
func (m *Manager) Leave(ctx context.Context, of func(runUID string) bool) {
	m.mu.Lock()
	left := disown(m, of, nil)
	m.mu.Unlock()
	m.giveUp(ctx, left)
}

// unused is what a process has of a lock that nobody in it uses: a token that may own it, or, where
// that is empty, maybe a place in the queue.
type unused struct{ runUID, token string }

// disown takes what this process has of the locks of runs, and nobody in it uses, out of the books,
// and those who wait for one. They are not told: whoever calls this has ended their work. The users
// of locks are told the cause to stop, if there is one. Needs mu.
func disown(m *Manager, of func(runUID string) bool, cause error) []unused {
	var left []unused
	for _, r := range m.runs {
		if of(r.uid) {
			left = append(left, disownRun(m, r, cause)...)
		}
	}
	return left
}

// disownRun does that for one run. Needs mu.
func disownRun(m *Manager, r *run, cause error) []unused {
	mayBeInLine := len(r.waiters) > 0 && r.hold == nil // whoever has the lock is not
	r.waiters, r.askAt = nil, time.Time{}
	r.left = r.taking // it gives up itself what it gets
	if r.hold != nil && !disownHold(m, r, cause) || r.taking {
		return nil
	}
	tokens := []string{r.pending}
	if cause != nil {
		tokens = append(tokens, r.dead) // whose release was tried; once more, as this process is to end
	}
	var left []unused
	for _, token := range tokens {
		if token != "" {
			left = append(left, unused{r.uid, token})
		}
	}
	if mayBeInLine {
		left = append(left, unused{r.uid, ""})
	}
	if r.pending != "" { // its release may come late, and must not be that of the next take
		r.dead, r.pending = r.pending, ""
	}
	m.reschedule(r)
	return left
}

// disownHold tells the user of a hold the cause to stop. A hold without one is taken out of the
// books (true); where there is no cause it only lingers no longer, and the scheduler gives it
// back. Needs mu.
func disownHold(m *Manager, r *run, cause error) (out bool) {
	switch {
	case r.hold.user != nil && cause != nil:
		r.hold.user.fail(cause)
	case r.hold.user != nil:
	case cause == nil:
		r.hold.offered, r.hold.lingerUntil = "", m.now()
		m.reschedule(r)
	default:
		m.detach(r)
		return true
	}
	return false
}

// giveUp gives up locks and places in queues, several at a time, until ctx ends. Errors are left
// to the TTL.
func (m *Manager) giveUp(ctx context.Context, all []unused) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, u := range all {
		if !m.slot(ctx) {
			return
		}
		calls.Go(func() {
			defer func() { <-m.slots }()
			callCtx, cancel := m.bounded(ctx, callTimeout)
			defer cancel()
			var err error
			if u.token == "" {
				err = m.store.Leave(callCtx, u.runUID, m.process)
			} else {
				_, err = m.store.Release(callCtx, u.runUID, u.token)
			}
			if err != nil {
				m.opts.Log.V(1).Info("Run lock or a place in its queue is not given up, it ends by itself", "runUID", u.runUID, "cause", err.Error())
			}
		})
	}
}
