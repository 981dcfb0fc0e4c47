// SPDX-License-Identifier: Apache-2.0

// Package origin says what a run takes over from the one that spec.startFrom names.
//
// For example: of the chain build, deploy, announce the run "release-x7k" has done build, and
// deploy failed. A run with startFrom release-x7k begins with build as it ended there, with its
// output, and with deploy as its first job.
//
// Both have to do the same work: the same steps, clean-up and outputs, or the same revision of a
// Workflow, and the same inputs. So what an expression gave there it would give here, but for one
// that reads the name, the uid or the workload class of its run: a step that is taken over has
// what they were there.
package origin

import (
	"cmp"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Of says what a run of a tenant takes over from another one, as both are stored; nil: that does
// not exist. Plan has the steps of the run, and revision is what it follows.
func Of(was, run *v1alpha1.WorkflowRun, plan *dag.Plan, revision *v1alpha1.WorkflowRevision, tenant string) facts.Origin {
	if problem := problemOf(was, run, revision, tenant); problem != "" {
		return facts.Origin{Problem: fmt.Sprintf("spec.startFrom: run %s %s", run.Spec.StartFrom.Run, problem)}
	}
	taken := takenOver(was, plan)
	if len(taken) == plan.Main {
		return facts.Origin{Problem: fmt.Sprintf("spec.startFrom: run %s has done all of its steps: nothing is left to do", was.Name)}
	}
	return facts.Origin{Steps: taken}
}

// CleansUp says that a run cannot start yet from one that has ended: a child run of that is at its
// clean-up.
func CleansUp(was *v1alpha1.WorkflowRun) facts.Origin {
	return facts.Origin{Problem: fmt.Sprintf("spec.startFrom: run %s has ended, and a child run of it is at its clean-up: create the run again when that is over", was.Name)}
}

// problemOf says why a run cannot start from another one; "": it can.
func problemOf(was, run *v1alpha1.WorkflowRun, revision *v1alpha1.WorkflowRevision, tenant string) string {
	switch {
	case was == nil || string(was.UID) != run.Spec.StartFrom.UID:
		return "of uid " + run.Spec.StartFrom.UID + " does not exist"
	case !status.Finished(was):
		return "has not ended"
	case was.Status.Tenant != tenant:
		return "is of another tenant"
	case status.CutShort(was.Status):
		return "had no room for the outputs of its steps (too many labels, or other metadata): create the run without startFrom"
	case !sameRevision(was.Status.Workflow, revision):
		return "had another revision of its Workflow"
	case work(was) != work(run):
		return "had other steps, outputs or inputs"
	}
	return ""
}

func sameRevision(a, b *v1alpha1.WorkflowRevision) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// work is what decides what a run does, beside its Workflow.
func work(run *v1alpha1.WorkflowRun) string {
	s := &run.Spec
	raw, err := json.Marshal(struct {
		Steps, Finally  []v1alpha1.Step
		Outputs, Inputs *runtime.RawExtension
	}{s.Steps, s.Finally, s.Outputs, s.Inputs})
	if err == nil {
		raw, err = bounds.Canonical(raw, nil)
	}
	if err != nil {
		return string(run.UID) // equal to no other
	}
	return string(raw)
}

// takenOver are the steps that are done, and of which all that they depend on is taken over, too.
// An output in the object store goes with the run that it is of, so such a step is done again. So
// is one with an output that stands in status deeper than one may: tools that list runs fail at it.
func takenOver(was *v1alpha1.WorkflowRun, plan *dag.Plan) []v1alpha1.StepStatus {
	steps := status.Align(plan.Steps, was.Status.Steps)
	is := make([]bool, len(steps))
	for i := range is {
		is[i] = Done(&steps[i])
	}
	var taken []v1alpha1.StepStatus
	for i := range plan.Main {
		if is[i] && allDone(is, plan.Ancestors(i)) {
			taken = append(taken, asTaken(&steps[i], was.Name))
		}
	}
	return taken
}

func allDone(is []bool, which []int) bool {
	for _, i := range which {
		if !is[i] {
			return false
		}
	}
	return true
}

// Done says whether a run that starts from that of the step may take it over.
func Done(s *v1alpha1.StepStatus) bool {
	return (s.Phase == v1alpha1.StepSucceeded || s.Phase == v1alpha1.StepSkipped) && s.OutputRef == nil &&
		!document.Deeper(bounds.Raw(s.Output), bounds.MaxInputDepth)
}

// asTaken is a step as it ended elsewhere, without what names a job, a child run or a lock there.
func asTaken(s *v1alpha1.StepStatus, by string) v1alpha1.StepStatus {
	taken := *s.DeepCopy()
	taken.DoneBy = cmp.Or(s.DoneBy, by)
	taken.Attempt, taken.JobID, taken.ChildRun, taken.Locks, taken.LockWait = 0, "", nil, nil, nil
	return taken
}
