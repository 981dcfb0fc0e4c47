// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"time"
)

// hold is the ownership of one lock, from take to release; users come and go while it lingers.
// Guarded by Manager.mu but for the fields above the line, which never change.
type hold struct {
	token   string
	takenAt time.Time
	// ctx ends with the hold; for background calls.
	ctx context.Context //nolint:containedctx // belongs to the renewals of this hold, which no caller waits for
	end context.CancelFunc

	// ---
	request     Request   // of the last user
	fence       int64     // rises when a lock that was gone is taken again
	validUntil  time.Time // the lock may be another's from then on
	repeated    bool      // a take was sent more than once: a late copy may bring the token back after the release
	unlocked    bool      // validUntil is over and the user goes on, as the policy wants it
	renewAt     time.Time
	lingerUntil time.Time // without a user: it is released then
	renewing    bool      // a renewal is under way
	renewed     bool      // at least one renewal succeeded
	retaking    bool      // the lock was gone and is being taken again; how the last try ended is not known
	failures    int       // renewals failed in a row
	failure     string    // why the last of them failed
	user        *Lease    // nil: lingers
	lost        *LostError
	// countedUntil is up to when the metrics know how long the lease of the user was valid.
	countedUntil time.Time
	offered      string // without a user: the waiter it is kept for; empty: nobody
	others       bool   // other processes wait for the lock
	passes       int    // how often it went from one waiter of this process to the next
}

func newHold(ctx context.Context, t take, got reply) *hold {
	h := &hold{
		token: t.token, fence: got.grant.fence, takenAt: got.sentAt, repeated: t.repeated, request: t.request, others: got.grant.others,
	}
	h.ctx, h.end = context.WithCancel(context.WithoutCancel(ctx))
	h.extend(got.sentAt)
	return h
}

// extend notes a take or renewal that succeeded and was sent at sentAt.
func (h *hold) extend(sentAt time.Time) {
	h.failures, h.failure, h.unlocked, h.retaking = 0, "", false, false
	p := h.request.Policy
	h.validUntil = sentAt.Add(p.Validity())
	h.renewAt = sentAt.Add(p.Renewal.Interval)
}

// reusable says whether a lingering hold may serve a request. The fence rule is that of the API
// server: a status with a higher fence, or with the same fence of another lease, would refuse every
// write under this hold.
func (h *hold) reusable(req Request, now time.Time) bool {
	current := h.fence > req.Floor || (h.fence == req.Floor && h.token == req.FloorLeaseID)
	return current && now.Before(h.validUntil) && h.request.Policy == req.Policy
}

// nextEvent is when something is to be done about the hold without anybody asking; zero: never.
func (h *hold) nextEvent() time.Time {
	if h.lost != nil {
		return time.Time{}
	}
	var next time.Time
	if !h.unlocked {
		next = h.validUntil
	}
	if !h.renewing {
		next = earliest(next, h.renewAt)
	}
	if h.user == nil {
		next = earliest(next, h.lingerUntil)
	}
	return next
}

// earliest is the earlier of two times; a zero time means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// goesOn says that work under the hold goes on without the lock. A hold that nobody works
// under just ends.
func (h *hold) goesOn() bool { return h.request.Policy.Renewal.Continue && h.user != nil }
