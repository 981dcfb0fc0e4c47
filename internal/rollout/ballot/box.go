// SPDX-License-Identifier: Apache-2.0

// Package ballot counts, in one process, how runs and tenant-minutes fare in rollouts. The run
// controller and the quota controller cast, the policy controller reads.
//
// A tenant-minute has one vote over all processes. Each of them enters it with its first start;
// one has the vote, says Claimed, and counts what it saw of the minute once that is over:
//
//	Enter, true ──> Claimed(ours) ──> Leave, Enter, Leave ... ──> the minute is over: Close counts it
//	            └─> Claimed(another's) ──> forgotten when it is over
//
// Counts are of this process's life: they begin at 0 and never go down. Whoever reads them writes
// them down as they are, under a name that no other life of a process has; so writing them twice,
// or not knowing whether a write took effect, does no harm.
package ballot

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/policynames"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// maxTallies bounds the candidates that are counted. Beyond it the one is forgotten that was
// neither counted nor read for longest: it was superseded long ago.
const maxTallies = 1024

// Entry names what is counted: a candidate of a policy.
type Entry struct{ Policy, Candidate string }

// Vote is that of a run that ended, or of a start in a tenant-minute.
type Vote struct {
	// BusyTries is how often in a row, at the most, the lock was busy.
	BusyTries int
	// Wait is the longest wait for the lock.
	Wait time.Duration
	// Latency is the longest latency of a result; negative: it had none.
	Latency time.Duration
}

// PutOff is the vote of a start that gave up after so many tries, and comes again later. It is
// busy, and waited longer than any that got the lock: else a candidate that gives up sooner
// would look better.
func PutOff(busyTries int) Vote {
	return Vote{BusyTries: max(2, busyTries), Wait: 2 * rollout.Bounds[len(rollout.Bounds)-1]}
}

// Hard is an event of which one is too many.
type Hard string

// The kinds of hard events.
const (
	Abandoned    Hard = "abandoned"
	FenceRefused Hard = "fence_refused"
	DeadLettered Hard = "dead_lettered"
)

// Box holds the counts. Safe for concurrent use.
type Box struct {
	runs  *prometheus.CounterVec
	names *policynames.Names

	mu      sync.Mutex
	tallies map[Entry]*tally
	uses    int64 // of tallies
	minutes map[Minute]*minute
}

// tally is what was counted for a candidate.
type tally struct {
	rollout.Tally

	used int64 // Box.uses when it was used last
}

// NewBox makes a box, and registers its metric; nil: it is not registered. names are those of
// policies that are in labels.
func NewBox(reg prometheus.Registerer, names *policynames.Names) *Box {
	b := &Box{
		names:   names,
		tallies: map[Entry]*tally{}, minutes: map[Minute]*minute{},
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_rollout_runs_total",
			Help: "Runs, or tenant-minutes, in rollouts of LockPolicies, by arm and by what they voted: began, ended, contended, busy, abandoned, fence_refused, dead_lettered.",
		}, []string{"policy", "arm", "vote"}),
	}
	names.Drop(b.runs)
	if reg != nil {
		reg.MustRegister(b.runs)
	}
	return b
}

// Began counts a run that was put into an arm, or into none.
func (b *Box) Began(e Entry, arm rollout.Arm) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began(e, arm)
}

// began needs mu.
func (b *Box) began(e Entry, arm rollout.Arm) {
	b.count(e, arm, func(c *rollout.Counts) { c.Runs++ }, "began")
}

// Ended counts the vote of a run.
func (b *Box) Ended(e Entry, arm rollout.Arm, v Vote) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended(e, arm, v)
}

// ended needs mu.
func (b *Box) ended(e Entry, arm rollout.Arm, v Vote) {
	votes := []string{"ended"}
	if v.BusyTries > 0 {
		votes = append(votes, "contended")
	}
	if v.BusyTries > 1 {
		votes = append(votes, "busy")
	}
	b.count(e, arm, func(c *rollout.Counts) {
		c.Ended++
		if v.BusyTries > 0 {
			c.Contended++
		}
		if v.BusyTries > 1 {
			c.Busy++
		}
		c.Waits.Add(v.Wait)
		if v.Latency >= 0 {
			c.Latencies.Add(v.Latency)
		}
	}, votes...)
}

// Struck counts a run that a hard event struck. The caller says so once for each run and kind.
func (b *Box) Struck(e Entry, arm rollout.Arm, kind Hard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(e, arm, func(c *rollout.Counts) {
		switch kind {
		case Abandoned:
			c.Abandoned++
		case FenceRefused:
			c.FenceRefused++
		case DeadLettered:
			c.DeadLettered++
		}
	}, string(kind))
}

// count needs mu.
func (b *Box) count(e Entry, arm rollout.Arm, add func(*rollout.Counts), votes ...string) {
	t := b.used(e)
	if t == nil {
		if len(b.tallies) == maxTallies {
			b.forgetOne()
		}
		b.tallies[e] = &tally{}
		t = b.used(e)
	}
	switch arm {
	case rollout.Canary:
		add(&t.Canary)
	case rollout.Control:
		add(&t.Control)
	case rollout.Rest:
		t.Rest++
		return
	}
	for _, vote := range votes {
		b.runs.WithLabelValues(b.names.Label(e.Policy), string(arm), vote).Inc()
	}
}

// Of is what was counted for a candidate in this life of the process.
func (b *Box) Of(e Entry) rollout.Tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.used(e); t != nil {
		return t.Tally
	}
	return rollout.Tally{}
}

// used is a tally that is used now; nil: there is none. It needs mu.
func (b *Box) used(e Entry) *tally {
	t := b.tallies[e]
	if t != nil {
		b.uses++
		t.used = b.uses
	}
	return t
}

// forgetOne needs mu.
func (b *Box) forgetOne() {
	var oldest Entry
	least := int64(math.MaxInt64)
	for e, t := range b.tallies {
		if t.used < least {
			oldest, least = e, t.used
		}
	}
	delete(b.tallies, oldest)
}
