// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"cmp"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// finest is the part of a time-out by which items in flight are put off first, where there are too
// many groups. It is a power of two, as each stretch has to be two of the one before, and a second
// has 2^6 times a whole number of microseconds.
const finest = 64

// bound sorts the groups and keeps their number within what one of several steps may have, of those
// in flight and those that back off each: who waits takes no place of who works.
//
// Groups that are made one have the later time, again and again while other items begin. So time is
// cut into stretches, and only groups whose moment is in the same one are made one: the moment
// of an item never leaves its stretch. Where short stretches leave too many groups, two of
// them are one.
func (it *Items) bound(active int, now time.Time) {
	var flying, waiting, others []Group
	slices.SortFunc(it.groups, compareGroups)
	for _, g := range it.groups {
		switch {
		case g.Set.Len() == 0:
		case status.InFlight(g.Phase):
			flying = append(flying, g)
		case g.Phase == v1alpha1.StepBackingOff:
			waiting = append(waiting, g)
		default:
			others = append(others, g)
		}
	}
	flying = it.fewInFlight(flying, share(bounds.MaxGroups, active, bounds.MinInFlight), now)
	it.groups = slices.Concat(flying, fewWaiting(waiting, share(bounds.MaxGroups, active, bounds.MinWaiting), now), others)
	slices.SortFunc(it.groups, compareGroups)
}

// fewInFlight makes groups in flight one that have the same history: their attempts are part of job
// ids. The longest stretch is the time-out, so an item times out after twice its time at most, and
// each history has some two groups that run and two that were dispatched.
func (it *Items) fewInFlight(groups []Group, limit int, now time.Time) []Group {
	for part := time.Duration(finest); part >= 1 && len(groups) > limit; part /= 2 {
		groups = joined(groups, limit, now, func(a, b *Group) bool {
			width := status.StartTimeout(it.spec)
			if a.Phase == v1alpha1.StepRunning {
				width = status.AttemptTimeout(it.spec)
			}
			return a.Phase == b.Phase && a.history() == b.history() && a.DeadLetter == b.DeadLetter &&
				stretch(a.end(it.spec), width/part) == stretch(b.end(it.spec), width/part)
		})
	}
	return groups
}

// fewWaiting makes groups that back off one, those with the same history first. All whose wait is
// over are in one stretch. The longest one is below two of the longest wait that is left, so three
// of them have all waits.
func fewWaiting(groups []Group, limit int, now time.Time) []Group {
	longest := time.Duration(0)
	for k := range groups {
		longest = max(longest, groups[k].since().Sub(now))
	}
	until := func(g *Group, width time.Duration) int64 {
		if bounds.Due(now, g.NextAttemptAt) {
			return math.MinInt64
		}
		return stretch(g.NextAttemptAt.Time, width)
	}
	for _, all := range []bool{false, true} {
		if all {
			slices.SortFunc(groups, func(a, b Group) int { return cmp.Or(a.since().Compare(b.since()), compareGroups(a, b)) })
		}
		for width := time.Second; len(groups) > limit; width *= 2 {
			groups = joined(groups, limit, now, func(a, b *Group) bool {
				return (all || a.history() == b.history()) && until(a, width) == until(b, width)
			})
			if width >= longest {
				break
			}
		}
	}
	return groups
}

// stretch is the number of the stretch of so much time in which a moment is. Two stretches with
// their beginning at an even number are one of twice the width.
func stretch(at time.Time, width time.Duration) int64 { return at.UnixMicro() / width.Microseconds() }

// joined makes neighbours one that may be, until there are few enough groups. It begins with the
// last: the oldest is to time out first.
func joined(groups []Group, limit int, now time.Time, may func(a, b *Group) bool) []Group {
	last, excess := len(groups)-1, len(groups)-limit
	for k := last - 1; k >= 0; k-- {
		if excess > 0 && may(&groups[k], &groups[last]) {
			groups[last] = join(&groups[k], &groups[last], now)
			excess--
			continue
		}
		last--
		groups[last] = groups[k]
	}
	return groups[last:]
}

// join is one group made of two. Of times that are over the earlier one stays: who has waited for
// longest is to go out first.
func join(a, b *Group, now time.Time) Group {
	next := later(a.NextAttemptAt, b.NextAttemptAt)
	if a.NextAttemptAt != nil && bounds.Due(now, next) {
		next = a.NextAttemptAt
	}
	return Group{
		Set: a.Set.Union(b.Set), Phase: a.Phase, Attempt: max(a.Attempt, b.Attempt), Failures: min(a.Failures, b.Failures),
		DispatchedAt: later(a.DispatchedAt, b.DispatchedAt), StartedAt: later(a.StartedAt, b.StartedAt),
		NextAttemptAt: next, DeadLetter: a.DeadLetter,
	}
}

func later(a, b *metav1.MicroTime) *metav1.MicroTime {
	if a == nil || (b != nil && b.After(a.Time)) {
		return b
	}
	return a
}
