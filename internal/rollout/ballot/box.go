// SPDX-License-Identifier: Apache-2.0

// Package ballot counts, in one process, how runs fare in rollouts. The run controller casts, the
// policy controller reads.
//
// Counts are of this process's life: they begin at 0 and never go down. Whoever reads them writes
// them down as they are, under a name that no other life of a process has; so writing them twice,
// or not knowing whether a write took effect, does no harm.
package ballot

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// maxTallies bounds the candidates that are counted; beyond it the oldest is forgotten, which was
// superseded long ago.
const maxTallies = 1024

// Entry names what is counted: a candidate of a policy.
type Entry struct{ Policy, Candidate string }

// Vote is that of a run that ended.
type Vote struct {
	// BusyTries is how often in a row, at the most, the lock was busy.
	BusyTries int
	// Wait is the longest wait for the lock.
	Wait time.Duration
	// Latency is the longest latency of a result; negative: it had none.
	Latency time.Duration
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
	runs *prometheus.CounterVec

	mu      sync.Mutex
	tallies map[Entry]*rollout.Tally
	order   []Entry // of tallies, the oldest first
}

// NewBox makes a box, and registers its metric; nil: it is not registered.
func NewBox(reg prometheus.Registerer) *Box {
	b := &Box{
		tallies: map[Entry]*rollout.Tally{},
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "syncopate_rollout_runs_total",
			Help: "Runs in rollouts of LockPolicies, by arm and by what they voted: began, ended, contended, busy, abandoned, fence_refused, dead_lettered.",
		}, []string{"policy", "arm", "vote"}),
	}
	if reg != nil {
		reg.MustRegister(b.runs)
	}
	return b
}

// Began counts a run that was put into an arm, or into none.
func (b *Box) Began(e Entry, arm rollout.Arm) {
	b.count(e, arm, func(c *rollout.Counts) { c.Runs++ }, "began")
}

// Ended counts the vote of a run.
func (b *Box) Ended(e Entry, arm rollout.Arm, v Vote) {
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

func (b *Box) count(e Entry, arm rollout.Arm, add func(*rollout.Counts), votes ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallies[e]
	if t == nil {
		if len(b.order) == maxTallies {
			delete(b.tallies, b.order[0])
			b.order = b.order[1:]
		}
		t = &rollout.Tally{}
		b.tallies[e], b.order = t, append(b.order, e)
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
		b.runs.WithLabelValues(e.Policy, string(arm), vote).Inc()
	}
}

// Of is what was counted for a candidate in this life of the process.
func (b *Box) Of(e Entry) rollout.Tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tallies[e]; t != nil {
		return *t
	}
	return rollout.Tally{}
}
