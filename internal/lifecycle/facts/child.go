// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// ChildState is what is known of the child run of a step.
type ChildState int

// States of a child. The zero value says nothing.
const (
	ChildUnknown   ChildState = iota
	ChildThere                // it exists, and is the one that its parent named
	ChildGone                 // there is no run of that name and uid any more, by a live read
	ChildTaken                // another run has its name, by a live read
	ChildRefused              // the API server does not take it as it is, or it cannot be rendered any more
	ChildPostponed            // it could not be created now; the shell tries again
)

// Child is what was seen of the child run of a step.
type Child struct {
	State    ChildState
	UID      string // ChildThere
	Finished bool   // ChildThere; the rest says how it ended
	Phase    v1alpha1.RunPhase
	Reason   string
	Message  string

	Output    json.RawMessage           // what it returned, if that is in status
	OutputRef *v1alpha1.OutputReference // where it is otherwise

	Cause string // ChildTaken, ChildRefused, ChildPostponed: why, for people
}

// SeenChild is what a child run that exists tells its parent.
func SeenChild(run *v1alpha1.WorkflowRun) Child {
	c := Child{State: ChildThere, UID: string(run.UID), Finished: status.Finished(run) && run.NeedsNewer() == 0}
	if !c.Finished {
		return c
	}
	c.Phase, c.OutputRef = run.Status.Phase, run.Status.OutputsRef
	if run.Status.Outputs != nil {
		c.Output = run.Status.Outputs.Raw
	}
	if end := status.Condition(run.Status, v1alpha1.ConditionSucceeded); end != nil {
		c.Reason, c.Message = end.Reason, end.Message
	}
	return c
}
