// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// questions says which time-outs a decision may decide: an answer that the stream has
// is no time-out.
type questions struct {
	known *facts.Answers
	needs *Needs
	now   time.Time

	waiting   map[protocol.JobID]bool // what is over, and waits for the object store with its output: answers to attempts above all
	deferred  bool                    // a time-out that is due waits for answers
	lacking   report.Lacking          // what it waits for
	outOfTime bool                    // it is a deadline of the run: nothing begins any more
}

// timedOut says whether a time-out of attempts in flight is to be decided now. One that is due
// waits until the stream was asked for what it had stored by then. Once that was given up it is
// asked once more: the stream may answer again, and nobody have come to ask.
func (a *questions) timedOut(at time.Time) bool {
	switch {
	case at.IsZero() || a.now.Before(at):
		return false
	case a.known.Cover(at):
		return true
	}
	a.needs.Answers = true
	if a.known.GivenUp(a.now) {
		return true
	}
	a.deferred = true
	return false
}

// answerable says whether there may be answers that were not heard: those of workers, and signals
// to steps that wait for one.
type answerable struct{ workers, signals func() bool }

// runTimedOut is timedOut for a deadline of the run, which ends all attempts, and steps that wait
// for a signal. While it waits nothing begins.
func (a *questions) runTimedOut(at time.Time, who answerable) bool {
	switch {
	case at.IsZero() || a.now.Before(at):
		return false
	case len(a.waiting) > 0 && !a.known.GivenUp(a.now):
		a.deferred, a.lacking = true, report.LacksOutputs
	case who.workers() && !a.timedOut(at):
	case !who.signals() || a.unsignalled():
		return true
	}
	a.outOfTime = true
	return false
}

// unsignalled says whether a deadline does without the signals that the shell has not read: it
// waits for them as for other answers.
func (a *questions) unsignalled() bool {
	a.needs.Signals = true
	if a.known.GivenUp(a.now) {
		return true
	}
	a.deferred, a.lacking = true, report.LacksSignals
	return false
}

// arrived says whether an attempt whose time is over has an answer at hand that cannot be applied
// yet, because its output waits for the object store: so that it does not time out.
func (a *questions) arrived(id protocol.JobID) bool {
	if !a.waiting[id] || a.known.GivenUp(a.now) {
		return false
	}
	a.deferred, a.lacking = true, report.LacksOutputs
	return true
}

// note remembers which attempts have answers at hand that could not be applied.
func (a *questions) note(results []Result, verdicts []Verdict) {
	for k, v := range verdicts {
		if v == Waiting {
			a.await(results[k].ID)
		}
	}
}

// await remembers an attempt whose answer waits, or another output that does: of what needs no
// worker, of all items of a step, or of the run, each by the name that the object store
// knows it by.
func (a *questions) await(id protocol.JobID) {
	if a.waiting == nil {
		a.waiting = map[protocol.JobID]bool{}
	}
	a.waiting[id] = true
}

// earliest collects the moments for a wake. What is due and waits for answers is none: the shell
// decides again when it may have them.
func (a *questions) earliest() earliest {
	e := earliest{}
	if a.deferred {
		e.beyond = a.now
		e.add(a.known.PatienceEnd())
	}
	return e
}
