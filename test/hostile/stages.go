// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Stages are where the time of runs goes, one after the other; of each its p99, which need not be
// of the same run. Runs of which a stage was not seen are left out of it.
type Stages struct {
	// Create is the API server's answer to the creation.
	Create time.Duration
	// First is from then to the moment when a worker has the first job.
	First time.Duration
	// Next is from the answer to the first job to the second job.
	Next time.Duration
	// End is from the last answer to the end of the run as a watch sees it.
	End time.Duration
}

// creation is what its client knows of a run.
type creation struct {
	uid              string
	begun, confirmed time.Time
}

// spans are the stages of each run.
type spans struct{ create, first, next, end []time.Duration }

// p99s are those of each stage.
func (s spans) p99s() Stages { return Stages{p99(s.create), p99(s.first), p99(s.next), p99(s.end)} }

// with adds those of other runs.
func (s spans) with(o spans) spans {
	return spans{slices.Concat(s.create, o.create), slices.Concat(s.first, o.first), slices.Concat(s.next, o.next), slices.Concat(s.end, o.end)}
}

// spans are those of runs of chainLength steps that end at some moments.
func (n *Neighbours) spans(created map[string]creation, ends map[string]time.Time) (s spans) {
	for name, c := range created {
		s.create = append(s.create, c.confirmed.Sub(c.begun))
		jobs := make([]jobTimes, chainLength)
		for k := range jobs {
			jobs[k] = n.log.times(protocol.JobID{RunUID: c.uid, Step: stepName(k), Item: protocol.NoItem, Attempt: 1})
		}
		s.first = appendSpan(s.first, c.confirmed, jobs[0].begun)
		s.next = appendSpan(s.next, jobs[0].ended, jobs[1].begun)
		s.end = appendSpan(s.end, jobs[chainLength-1].ended, ends[name])
	}
	return s
}

// appendSpan adds the time from one moment to another, if both were seen. A worker may have a job
// before the client knows that the run is created.
func appendSpan(all []time.Duration, from, to time.Time) []time.Duration {
	if from.IsZero() || to.IsZero() {
		return all
	}
	return append(all, max(0, to.Sub(from)))
}

// p99 sorts what it is given; none: 0.
func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*99-1)/100]
}
