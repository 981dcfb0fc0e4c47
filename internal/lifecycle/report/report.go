// SPDX-License-Identifier: Apache-2.0

package report

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
)

// Report is about one decision. Its methods write conditions into the status, and collect events.
type Report struct {
	Events []Event // those of the stages, then its own

	in    *facts.Input
	run   *v1alpha1.WorkflowRun       // as its parent wants it
	st    *v1alpha1.WorkflowRunStatus // after the decision; its conditions are those before
	now   time.Time
	plan  *dag.Plan
	items []*fanout.Items
	found Found
}

// Found is what a decision found out that its status does not say.
type Found struct {
	Events      []Event            // of the stages
	End         *End               // how the run ended in this decision; nil: it goes on
	Rejected    string             // what was wrong with the last result that was rejected; "": none was
	DeadLetters []facts.DeadLetter // to put aside, of which the persisted status does not say so
	Deferred    bool               // a time-out that is due waits for answers
	Lacking     Lacking            // what it waits for
	OutputsLack bool               // spec.outputs wait for the object store
	Assembling  bool               // the output of a step with forEach waits for the object store
}

// New is a report about a decision: in, the run as its parent wants it, and the status after it.
func New(in *facts.Input, run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, plan *dag.Plan, items []*fanout.Items, found Found) *Report {
	return &Report{in: in, run: run, st: st, now: in.Now, plan: plan, items: items, found: found, Events: found.Events}
}

// warn is an event of what goes wrong.
func (r *Report) warn(reason, message string) {
	r.Events = append(r.Events, newEvent(EventWarning, reason, message))
}

// detail is an event on the way of a run on which all is well.
func (r *Report) detail(reason, message string) {
	r.Events = append(r.Events, newDetail(reason, message))
}

func newDetail(reason, message string) Event {
	e := newEvent(EventNormal, reason, message)
	e.Detail = true
	return e
}

// newEvent bounds what is said to what the API server takes.
func newEvent(kind, reason, message string) Event {
	return Event{Type: kind, Reason: reason, Message: bounds.CutBytes(bounds.Printable(message, bounds.MaxMessageChars), bounds.MaxEventBytes)}
}
