// SPDX-License-Identifier: Apache-2.0

package pacing

import (
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// MinPause is the least time between the end of a run's status write and the start of
	// its next one.
	MinPause = 10 * time.Millisecond
	// ResultsPerPause is how many results in one write make the pause after it longer by the
	// duration of that write.
	ResultsPerPause = 10
	// flushThreshold is how many results of a run make it write after the plain pause.
	flushThreshold = 100
	// MaxPause bounds that time: after a write that ran into its time-out the run must go on soon.
	MaxPause = time.Second
	// StartedPatience is how long news that jobs were started wait for company before they are
	// worth a write of their own.
	StartedPatience = 100 * time.Millisecond
	// ItemPatience is how long results of items of a step with forEach wait for others, and
	// itemShare that they are enough when one of so many that are in flight came: each write costs
	// the same, however many results it applies.
	ItemPatience = 100 * time.Millisecond
	itemShare    = 8
	// ItemStartedPatience is StartedPatience for items: there may be a thousand of them.
	ItemStartedPatience = time.Second
)

// LastWrite is the last status write of a run by this process; the zero value: there was none.
type LastWrite struct {
	End     time.Time
	Took    time.Duration
	Applied int // results
}

// News is what the next write is for.
type News struct {
	Results []Waiting
	// Patient says that the write has time: the run goes on without it, as a decision is kept, or
	// its namespace has all places for writes that it may have.
	Patient bool
}

// Next is the earliest time for the next status write of a run of which there are news: the pause
// lets others pile up, so that under load each write applies many of them. A run with many results
// at a time leaves more time to others: its writes are large, and they all go through one API
// server.
func (w LastWrite) Next(n News, run *v1alpha1.WorkflowRun) time.Time {
	if w.End.IsZero() {
		return time.Time{}
	}
	return w.End.Add(min(max(MinPause, w.pause(n, run)), MaxPause))
}

// pause is no longer than the write took if many wait, which holds memory, or the last few of many:
// what a large write owes to others is owed by the many, not by these. It is none for a chain: no
// other result can come before the write, and a slow API server would be waited for twice.
func (w LastWrite) pause(n News, run *v1alpha1.WorkflowRun) time.Duration {
	inFlight, last := noneToCome(n.Results, run)
	switch {
	case last && inFlight > 0 && !n.Patient && w.Applied < itemShare:
		return 0
	case last && inFlight*itemShare <= w.Applied, len(n.Results) >= flushThreshold:
		return w.Took
	default:
		return w.Took + w.Took*time.Duration(w.Applied)/ResultsPerPause
	}
}

// Waiting is a result that waits for a write.
type Waiting struct {
	Job     protocol.JobID
	Since   time.Time
	Item    bool // of a step with forEach
	Started bool // says that a job began; else it ends an attempt
}

// BatchReadyAt is when results of a run need not wait for company any more. These have to: news
// that jobs were started, as a status write each would double the writes of a run of short jobs,
// and results of a few of many items. Zero: nothing waits.
func BatchReadyAt(waiting []Waiting, run *v1alpha1.WorkflowRun) time.Time {
	if len(waiting) == 0 {
		return time.Time{}
	}
	oldest := waiting[0].Since
	for _, w := range waiting {
		if w.Since.Before(oldest) {
			oldest = w.Since
		}
	}
	return oldest.Add(patience(waiting, run))
}

// patience is how long results wait for company from when the oldest came.
func patience(waiting []Waiting, run *v1alpha1.WorkflowRun) time.Duration {
	finals, ofItems := 0, 0
	for _, w := range waiting {
		switch {
		case !w.Started && !w.Item:
			return 0
		case !w.Started:
			finals++
		case w.Item:
			ofItems++
		}
	}
	switch {
	case finals > 0 && finals*itemShare >= lifecycle.CountUnanswered(run):
		return 0
	case finals > 0:
		return ItemPatience
	case ofItems == len(waiting):
		return ItemStartedPatience
	default:
		return StartedPatience
	}
}

// noneToCome says whether the answers to all jobs that are in flight wait. Results that came again
// of jobs that are answered stand for none in flight.
func noneToCome(waiting []Waiting, run *v1alpha1.WorkflowRun) (inFlight int, none bool) {
	if len(waiting) == 0 {
		return 0, false
	}
	if inFlight = lifecycle.CountUnanswered(run); inFlight > len(waiting) {
		return inFlight, false
	}
	answered := make(map[protocol.JobID]bool, len(waiting))
	for _, w := range waiting {
		if !w.Started {
			answered[w.Job] = true
		}
	}
	return inFlight, !slices.ContainsFunc(lifecycle.Unanswered(run), func(id protocol.JobID) bool { return !answered[id] })
}

// NewsPatience is how long news of a started job wait for company.
func NewsPatience(item bool) time.Duration {
	if item {
		return ItemStartedPatience
	}
	return StartedPatience
}

// Earliest is the earlier of two times; a zero time means never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
