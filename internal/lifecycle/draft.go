// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// draft is a decision under work. A stage goes by the facts, changes the state, and adds to the
// outcome. ADR 56 says why stages share one draft.
type draft struct {
	given
	state
	outcome
}

// given are the facts of a decision. No stage changes them: TestNoStageChangesTheFacts.
type given struct {
	in   Input
	run  *v1alpha1.WorkflowRun // as in, but suspended while its parent is
	now  time.Time
	plan dag.Plan
}

// state is the run as the stages so far left it.
type state struct {
	st    v1alpha1.WorkflowRunStatus // becomes Decision.Status; shares nothing with the facts
	items []*fanout.Items            // by step: of those with forEach that are under way
	view  *render.View               // what expressions read

	store   store
	answers questions
	texts   texts

	initialized bool         // the persisted status knows the steps: the spec was validated
	asked       bool         // spec.outputs were evaluated in this decision
	assembled   map[int]kept // by step: where its output is, once all of its items are over
	launches    []launch     // what goes out with this decision, until it is committed
	launched    map[int]bool // by step: its job, or child run, is among them
	asks        map[int]bool // by step: its locks are asked for by this decision, and it takes a place
	placeFreed  bool         // an item or a step ended in the middle of starts: others may start by that
}

// outcome is what a decision gives beside the status.
type outcome struct {
	out      Decision
	ended    *report.End // how the run ended in this decision; nil: it goes on
	failure  *failure    // the first step that failed in this decision, if that ends the run
	rejected string      // what was wrong with the last result that was rejected

	resultsFirst bool // a failure, or a cancel, ends the run with the next decision: see leavesSome
	endsNext     bool // one does, and nothing begins any more

	announced   bool // this decision announced the end: the finally steps may begin
	outputsLack bool // spec.outputs lack something of the object store
	assembling  bool // the output of a step with forEach waits for the object store
	progressed  int  // steps and items that begin, or end as they do, with this decision
	left        bool // an expression is left for the next decision
	unread      bool // so is all: the spec is not validated yet
	locksAway   bool // the store of locks answered nothing about a step
}

// failure is a failed step as the reason for the end of its run.
type failure struct {
	step   int
	reason string
}

// event records a transition.
func (d *draft) event(e Event) { d.out.Events = append(d.out.Events, e) }

// ends says whether this decision ends the run, or announces its end.
func (d *draft) ends() bool { return d.ended != nil || d.announced }

// mayGoOn lets one more expression be evaluated though the decision took what it may, when nothing
// begins with it otherwise: each decision gets ahead, or lacks something of the object store that
// the next one will have, or asks for locks.
func mayGoOn(d *draft) bool {
	return d.progressed == 0 && !d.out.Needs.Outputs() && len(d.out.Needs.Locks) == 0
}

// leaveForNext says whether an expression is left for the next decision, and has that one made.
func leaveForNext(d *draft, err error) bool {
	if !errors.Is(err, render.ErrEnough) {
		return false
	}
	d.left = true
	return true
}
