// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// refusalsPerTake bounds how many writes may be refused for their fence, per lease taken.
const refusalsPerTake = 2

// take is a lease that a worker got. Times are instants.
type take struct {
	Run      string
	Child    string
	LeaseID  string
	Fence    int64
	Asked    object        // what the taker had read
	From, To time.Duration // it was asked for after From, and there at To
}

// claim is a moment at which a lease said that it has the lock: some instant in [From, To].
type claim struct {
	Run      string
	Child    string
	LeaseID  string
	Fence    int64
	From, To time.Duration
}

// losses are how many leases were lost in use, by reason.
type losses map[string]int

// report is what a child says at the end about the leases that it lost: as its workers saw it, and
// as it was counted.
type report struct{ Seen, Counted losses }

// history is what happened in a nemesis test.
type history struct {
	mu       sync.Mutex
	attempts []attempt // in the order in which the register saw them
	takes    []take
	claims   []claim
	reports  map[string]report // by child
}

// methods are for children that tell what they did.
func (h *history) methods() methods {
	return methods{
		"took": does(func(_ context.Context, t take) (none, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.takes = append(h.takes, t)
			return none{}, nil
		}),
		"claim": does(func(_ context.Context, c claim) (none, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.claims = append(h.claims, c)
			return none{}, nil
		}),
	}
}

// violations are the rules broken in a history. lossless says that Redis kept its data
// all the time.
func (h *history) violations(lossless bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := slices.Concat(
		brokenFences(h.attempts), fencesBelowFloor(h.takes), uselessLeases(h.attempts), tooManyRefusals(h.attempts, h.takes),
		uncountedLosses(h.reports),
	)
	if lossless {
		found = slices.Concat(found, sharedFences(h.takes), fallenFences(h.takes), overlaps(h.claims))
	}
	return found
}

// brokenFences finds accepted writes that break I3: under a lower fence than one before, or under a
// fence of another lease.
func brokenFences(attempts []attempt) []string {
	var found []string
	highest := map[string]int64{}
	owner := map[string]string{} // of a run's fence
	for _, a := range attempts {
		if a.Verdict != accepted {
			continue
		}
		if a.Fence < highest[a.Run] {
			found = append(found, fmt.Sprintf("I3: %s: %s wrote under fence %d after %d", a.Run, a.LeaseID, a.Fence, highest[a.Run]))
		}
		highest[a.Run] = max(highest[a.Run], a.Fence)
		key := fmt.Sprint(a.Run, "/", a.Fence)
		if o, ok := owner[key]; ok && o != a.LeaseID {
			found = append(found, fmt.Sprintf("I3: %s: %s and %s wrote under fence %d", a.Run, o, a.LeaseID, a.Fence))
		}
		owner[key] = a.LeaseID
	}
	return found
}

// fencesBelowFloor finds leases under which no write could have been accepted when they
// were asked for.
func fencesBelowFloor(takes []take) []string {
	var found []string
	for _, t := range takes {
		if t.Fence > t.Asked.Fence || (t.Fence == t.Asked.Fence && t.LeaseID == t.Asked.LeaseID) {
			continue
		}
		found = append(found, fmt.Sprintf("floor: %s: %s got fence %d, the status had %d of %s",
			t.Run, t.LeaseID, t.Fence, t.Asked.Fence, t.Asked.LeaseID))
	}
	return found
}

// uselessLeases finds refusals for the fence though nobody wrote after the lease was asked for: the
// next take could be refused in the same way, for ever.
func uselessLeases(attempts []attempt) []string {
	var found []string
	for _, a := range attempts {
		if a.Verdict.byFence() && a.Before.Fence == a.Asked.Fence && a.Before.LeaseID == a.Asked.LeaseID {
			found = append(found, fmt.Sprintf("refusal loop: %s: %s of fence %d was refused (%s) for what was there when it asked",
				a.Run, a.LeaseID, a.Fence, a.Verdict))
		}
	}
	return found
}

// tooManyRefusals finds runs on which more writes were refused for their fence than
// takes can explain.
func tooManyRefusals(attempts []attempt, takes []take) []string {
	refused, taken := map[string]int{}, map[string]int{}
	for _, a := range attempts {
		if a.Verdict.byFence() {
			refused[a.Run]++
		}
	}
	for _, t := range takes {
		taken[t.Run]++
	}
	var found []string
	for _, run := range slices.Sorted(maps.Keys(refused)) {
		if refused[run] > refusalsPerTake*taken[run] {
			found = append(found, fmt.Sprintf("refusal loop: %s: %d refusals in %d takes", run, refused[run], taken[run]))
		}
	}
	return found
}

// sharedFences finds leases of a run with the same fence. The same lease may be taken by several
// users, one after the other.
func sharedFences(takes []take) []string {
	var found []string
	owner := map[string]string{}
	for _, t := range takes {
		key := fmt.Sprint(t.Run, "/", t.Fence)
		if o, ok := owner[key]; ok && o != t.LeaseID {
			found = append(found, fmt.Sprintf("fence: %s: %s and %s have fence %d", t.Run, o, t.LeaseID, t.Fence))
		}
		owner[key] = t.LeaseID
	}
	return found
}

// fallenFences finds leases with a lower fence than one of the same run that was there before they
// were asked for.
func fallenFences(takes []take) []string {
	var found []string
	for run, takes := range byRun(takes, func(t take) string { return t.Run }) {
		byEnd := slices.SortedFunc(slices.Values(takes), func(a, b take) int { return cmp.Compare(a.To, b.To) })
		byStart := slices.SortedFunc(slices.Values(takes), func(a, b take) int { return cmp.Compare(a.From, b.From) })
		var highest int64
		for _, t := range byStart {
			for len(byEnd) > 0 && byEnd[0].To < t.From {
				highest = max(highest, byEnd[0].Fence)
				byEnd = byEnd[1:]
			}
			if t.Fence < highest {
				found = append(found, fmt.Sprintf("fence: %s: %s got fence %d after %d was given", run, t.LeaseID, t.Fence, highest))
			}
		}
	}
	return found
}

// span is a time during which a lease had the lock for certain, as it says itself.
type span struct {
	lease    string
	from, to time.Duration
}

// overlaps finds leases that said at the same time that they have the lock.
//
// Between two claims of a lease under one fence, it had the lock all the time: a lock that was
// gone comes back with a higher fence only. Of a claim itself only its bounds are known, so the
// span is that from the end of the first one to the start of the last one; a lease that claimed
// once has none.
func overlaps(claims []claim) []string {
	var found []string
	for run, claims := range byRun(claims, func(c claim) string { return c.Run }) {
		open := ""
		var until time.Duration
		for _, s := range spans(claims) {
			if s.from < until {
				found = append(found, fmt.Sprintf("exclusion: %s: %s and %s both had the lock for %s", run, open, s.lease, min(until, s.to)-s.from))
			}
			if s.to > until {
				open, until = s.lease, s.to
			}
		}
	}
	return found
}

// spans are the spans of the claims of one run, by their start.
func spans(claims []claim) []span {
	all := map[string]*span{}
	for _, c := range claims {
		lease := fmt.Sprintf("%s (fence %d)", c.LeaseID, c.Fence)
		s, ok := all[lease]
		if !ok {
			s = &span{lease: lease, from: c.To, to: c.From}
			all[lease] = s
		}
		s.from, s.to = min(s.from, c.To), max(s.to, c.From)
	}
	var certain []span
	for _, s := range all {
		if s.from < s.to {
			certain = append(certain, *s)
		}
	}
	slices.SortFunc(certain, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return certain
}

// uncountedLosses finds children whose count of losses is not what their workers saw (I6).
func uncountedLosses(reports map[string]report) []string {
	var found []string
	for _, child := range slices.Sorted(maps.Keys(reports)) {
		if r := reports[child]; !maps.Equal(r.Seen, r.Counted) {
			found = append(found, fmt.Sprintf("I6: child %s lost %v, and counted %v", child, r.Seen, r.Counted))
		}
	}
	return found
}

func byRun[T any](all []T, run func(T) string) map[string][]T {
	runs := map[string][]T{}
	for _, one := range all {
		runs[run(one)] = append(runs[run(one)], one)
	}
	return runs
}
