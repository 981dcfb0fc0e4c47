// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"encoding/json"
	"math"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/retry"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// startedTogether is within which time items that were begun count as one group: as begun
// at its end.
const startedTogether = time.Second

// Judge compares an attempt with the persisted state of its item. Applied means: it is in flight.
func (it *Items) Judge(s *v1alpha1.StepStatus, id protocol.JobID) (item int, v facts.Verdict) {
	if it == nil { // the step is over
		return Judge(s, nil, id)
	}
	return Judge(s, it.groups, id)
}

// Start notes that a worker began with an item.
func (it *Items) Start(item int, published, now time.Time) facts.Verdict {
	g := it.groups[it.find(item)]
	if g.Phase == v1alpha1.StepRunning {
		return facts.Duplicate
	}
	it.take(item)
	at := status.StartedAt(published, g.DispatchedAt, now).Time
	g.Phase, g.StartedAt = v1alpha1.StepRunning, bounds.Micro(at.Add(startedTogether-1).Truncate(startedTogether))
	it.put(item, g)
	return facts.Applied
}

// Succeeds notes that an item succeeds by a result, once there is a place for its output.
func (it *Items) Succeeds(item, result int, output json.RawMessage) {
	it.St.OutputBytes += int64(len(output))
	it.fresh[item] = &freshOutput{raw: output, results: []int{result}}
}

// SucceedsAlready says whether an item succeeds by an earlier result of this decision. Whatever
// else is said of the attempt comes too late.
func (it *Items) SucceedsAlready(item, result int) bool {
	f := it.fresh[item]
	if f == nil {
		return false
	}
	f.results = append(f.results, result)
	return true
}

// Fresh is how many items succeed with this decision.
func (it *Items) Fresh() int { return len(it.fresh) }

// Postpone leaves out the items that were to succeed, and names their results.
func (it *Items) Postpone() (results []int) {
	for _, f := range it.fresh {
		it.St.OutputBytes -= int64(len(f.raw))
		results = append(results, f.results...)
	}
	clear(it.fresh)
	return results
}

// Succeed ends the items that succeed.
func (it *Items) Succeed() {
	for item := range it.fresh {
		it.take(item)
		it.St.Succeeded++
	}
	clear(it.fresh)
}

// Fail ends an attempt of an item as failed: the item backs off, or failed for good. Items that
// fail together for the same time are tried again together.
func (it *Items) Fail(item int, code string, final bool, now time.Time) (forGood bool) {
	g := it.groups[it.find(item)]
	g.Failures = retry.Inc(g.Failures)
	if final || retry.Last(it.spec, code, g.Failures) || g.Attempt == math.MaxInt32 {
		it.FailForGood(item)
		return true
	}
	at, known := it.waits[g.history()]
	if !known {
		at = now.Add(retry.Backoff(it.spec.Retry.Backoff, g.Failures, it.JobID(item, g.Attempt)))
		it.waits[g.history()] = at
	}
	it.News.Later.Add(item)
	it.backOff(item, g, at)
	return false
}

// AskLater has an item tried again at a moment, without a failure. said is who asked for that, as
// the event has it.
func (it *Items) AskLater(item int, until time.Time, said string) {
	it.News.Postponed.Add(item)
	it.News.PostponedBy = said
	it.backOff(item, it.groups[it.find(item)], until)
}

func (it *Items) backOff(item int, g Group, until time.Time) {
	it.take(item)
	it.put(item, waiting(g, until))
}

// FailForGood ends an item as failed.
func (it *Items) FailForGood(item int) {
	it.take(item)
	it.St.Failed++
	it.failed.Add(item)
	it.News.Failed.Add(item)
}

// Note keeps the error of an item, as its step has it and as it is said, for the events about
// items. By default the first item that fails for good fails the step.
func (it *Items) Note(forGood bool, e *v1alpha1.StepError, said string) {
	if !forGood {
		it.News.DelayedBy = said
		return
	}
	it.News.FailedBy = said
	if it.Problem == nil && it.spec.ForEach.OnItemFailure != v1alpha1.Collect {
		it.Problem = e
	}
}

// PutAside notes that the answer of an item in flight is put aside.
func (it *Items) PutAside(s *v1alpha1.StepStatus, id protocol.JobID) {
	item, verdict := it.Judge(s, id)
	if verdict != facts.Applied {
		return
	}
	g := it.groups[it.find(item)]
	g.DeadLetter = v1alpha1.DeadLetterExhausted
	it.take(item)
	it.put(item, g)
}
