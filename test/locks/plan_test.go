// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// fault is something bad that begins and, after a while, ends.
type fault struct {
	Kind string
	// Run says whom it hits, unless it is Redis: the child that has the lock of this run then, or
	// had it last.
	Run   string
	At    time.Duration
	Lasts time.Duration
}

// The kinds of faults. Those of one lane come one after the other, so that nobody talks to a Redis
// that is paused; the two lanes overlap.
func networkFaults() []string {
	return []string{pauseRedis, dropReplies, cutReplies, resetConnections, slowReplies, refuseConnections, partition}
}

func dataLosses() []string { return []string{flushRedis, restartRedis, flushRedis} }

func processFaults() []string { return []string{pauseChild, killChild, pauseChild, killChild} }

// The faults.
const (
	pauseRedis        = "redis: SIGSTOP"
	flushRedis        = "redis: FLUSHALL"
	restartRedis      = "redis: restart"
	dropReplies       = "network: replies are dropped"
	cutReplies        = "network: connections end in the middle of replies"
	resetConnections  = "network: connections are reset"
	slowReplies       = "network: replies take 300 ms more"
	refuseConnections = "network: connections are refused"
	partition         = "network: nothing goes through"
	pauseChild        = "process: SIGSTOP"
	killChild         = "process: SIGKILL"
)

// lasting is between which bounds a fault lasts.
func lasting(kind string) (shortest, longest time.Duration) {
	switch kind {
	case flushRedis:
		return 0, 0
	case pauseRedis:
		return time.Second, 8 * time.Second
	case partition, refuseConnections, pauseChild: // beyond the TTL
		return 5500 * time.Millisecond, 7500 * time.Millisecond
	case killChild:
		return 100 * time.Millisecond, 2 * time.Second
	default:
		return 500 * time.Millisecond, 3 * time.Second
	}
}

// newPlan makes the plan of a seed: all faults of the lanes once, in any order, with pauses in
// which work goes on.
func newPlan(seed uint64, runs []string, lanes ...[]string) []fault {
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(shortest, longest time.Duration) time.Duration {
		return (shortest + time.Duration(r.Int64N(int64(longest-shortest)+1))).Truncate(time.Millisecond)
	}
	var plan []fault
	for _, lane := range lanes {
		at := between(200*time.Millisecond, 2*time.Second)
		for _, i := range r.Perm(len(lane)) {
			f := fault{Kind: lane[i], Run: runs[r.IntN(len(runs))], At: at, Lasts: between(lasting(lane[i]))}
			plan = append(plan, f)
			at += f.Lasts + between(200*time.Millisecond, 1500*time.Millisecond)
		}
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return int(a.At - b.At) })
	return plan
}

func planString(plan []fault) string {
	var s strings.Builder
	for _, f := range plan {
		fmt.Fprintf(&s, "%6.2f s .. %6.2f s  %s", f.At.Seconds(), (f.At + f.Lasts).Seconds(), f.Kind)
		if !strings.HasPrefix(f.Kind, "redis") {
			fmt.Fprintf(&s, " (holder of %s)", f.Run)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func TestAPlanFollowsFromItsSeed(t *testing.T) {
	runs := []string{"a", "b"}
	one, same, other := newPlan(1, runs, networkFaults()), newPlan(1, runs, networkFaults()), newPlan(2, runs, networkFaults())
	if !slices.Equal(one, same) || slices.Equal(one, other) {
		t.Errorf("seed 1:\n%sagain:\n%sseed 2:\n%s", planString(one), planString(same), planString(other))
	}
}

func TestFaultsOfALaneComeOneAfterTheOther(t *testing.T) {
	for seed := range uint64(100) {
		plan := newPlan(seed, []string{"a"}, slices.Concat(networkFaults(), dataLosses()))
		for i, f := range plan {
			if i > 0 && f.At < plan[i-1].At+plan[i-1].Lasts {
				t.Fatalf("seed %d:\n%s", seed, planString(plan))
			}
		}
		if len(plan) != len(networkFaults())+len(dataLosses()) {
			t.Fatalf("seed %d: %d faults", seed, len(plan))
		}
	}
}
