// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

const (
	// flapWindow is for how long lapses count.
	flapWindow = 50 // Leases: 5 minutes
	// mostProbation bounds how long a member that lapses again and again is unfit, in Leases.
	mostProbation = 10
)

// health is what a member says of itself, and why. It needs the mutex of the Keeper.
type health struct {
	lease, settle time.Duration

	// blocked: somebody holds LeaderLeaseName, as far as is known.
	leaving, blocked bool
	redis            *Redis
	// announced: the Lease says that this member leaves.
	announced bool
	// fit is what Fit last said, since changed. asked: it has said something. proven: it succeeded
	// once.
	fit, asked, proven bool
	changed            rules.Time
	// marked: others were asked to take the partitions.
	marked bool

	lapses []rules.Time
	said   rules.Mark
}

// newHealth is that of a member which is not fit until Fit succeeds: others would give it
// partitions in an outage that began before it.
func newHealth(o Options, t Timing) health {
	fit := o.Fit == nil
	return health{lease: t.Lease, settle: t.Settle, fit: fit, marked: !fit, proven: fit, blocked: o.LeaderLease != "", redis: o.Redis}
}

// mark is what the Lease says.
func (h *health) mark(now rules.Time, session bool) rules.Mark {
	if h.fit == h.marked && (!h.proven || now-h.changed >= h.lease) { // at first at once, then for long enough
		h.marked = !h.fit
	}
	h.proven = h.proven || h.fit
	cause := h.cause(now, session)
	return rules.Mark{Leaving: h.leaving, Blocked: h.ownsNothing(), Unfit: cause != "", Cause: cause}
}

// fails says whether Fit has failed for a whole Lease.
func (h *health) fails(now rules.Time) bool {
	return h.asked && !h.fit && now-h.changed >= h.lease
}

// cause is why others should have the partitions of this member; empty: it is fit.
func (h *health) cause(now rules.Time, session bool) string {
	switch {
	case h.marked && h.asked:
		return UnfitDependency
	case now < h.probation():
		return UnfitProbation
	case h.marked || !session:
		return UnfitStarting
	case h.blocked: // others may not be: they have not looked yet, or this member cannot
		return UnfitBlocked
	case h.redis.blocks(h.asked):
		return UnfitRedis
	}
	return ""
}

// ownsNothing says whether this member may own nothing, whatever it is given.
func (h *health) ownsNothing() bool { return h.blocked || h.redis.blocks(h.asked) }

// lapsed notes the end of a session that was not asked for.
func (h *health) lapsed(now rules.Time) {
	var young []rules.Time
	for _, at := range h.lapses {
		if now-at < flapWindow*h.lease {
			young = append(young, at)
		}
	}
	young = append(young, now)
	h.lapses = young[max(0, len(young)-mostProbation):]
}

// probation is until when a member that lapsed more than once in a short time is given nothing:
// twice as long each time.
func (h *health) probation() rules.Time {
	n := len(h.lapses)
	if n < 2 {
		return 0
	}
	return h.lapses[n-1] + min(h.settle<<(n-1), mostProbation*h.lease)
}

// fitness asks whether this process can work. The first success counts at once. After that what Fit
// says counts when it said so for a whole Lease.
func (k *Keeper) fitness(ctx context.Context) {
	for {
		var err error
		if k.opts.Fit != nil {
			asking, cancel := context.WithTimeout(ctx, k.timing.Renew)
			err = k.opts.Fit(asking)
			cancel()
		}
		k.apply(func(_ *rules.Member, now rules.Time) {
			if fit := err == nil; (fit != k.health.fit || !k.health.asked) && ctx.Err() == nil {
				k.health.fit, k.health.asked, k.health.changed = fit, true, now
				if err != nil {
					k.opts.Log.Info("This replica cannot work; others get its partitions if that lasts", "cause", err.Error())
				}
			}
			k.remark(now)
		})
		if !k.pause(ctx, k.timing.Renew, nil) {
			return
		}
	}
}
