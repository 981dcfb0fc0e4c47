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

// Next is the earliest time for the next status write: the pause lets results pile up, so that
// under load each write applies many of them. A run with many results at a time leaves more time to
// others: its writes are large, and they all go through one API server. But no longer than until
// many wait, which holds memory. And not for the last few of many, see LastOfMany.
func (w LastWrite) Next(waiting int, lastOfMany bool) time.Time {
	if w.End.IsZero() {
		return time.Time{}
	}
	pause := w.Took
	if waiting < flushThreshold && !lastOfMany {
		pause += w.Took * time.Duration(w.Applied) / ResultsPerPause
	}
	return w.End.Add(min(max(MinPause, pause), MaxPause))
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
	case finals > 0 && finals*itemShare >= len(lifecycle.Unanswered(run)):
		return 0
	case finals > 0:
		return ItemPatience
	case ofItems == len(waiting):
		return ItemStartedPatience
	default:
		return StartedPatience
	}
}

// LastOfMany says whether results of all jobs that are in flight wait, and these are few beside
// those of the last write: no other can come, and what a large write owes to others is owed by the
// many, not by these. Results that came again of jobs that are answered stand for none in flight.
func LastOfMany(waiting []Waiting, lastApplied int, run *v1alpha1.WorkflowRun) bool {
	if len(waiting) == 0 || lastApplied < itemShare {
		return false
	}
	inFlight := lifecycle.Unanswered(run)
	if len(inFlight)*itemShare > lastApplied {
		return false
	}
	answered := make(map[protocol.JobID]bool, len(waiting))
	for _, w := range waiting {
		if !w.Started {
			answered[w.Job] = true
		}
	}
	return !slices.ContainsFunc(inFlight, func(id protocol.JobID) bool { return !answered[id] })
}

// Earliest is the earlier of two times; a zero time means never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
