// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// applyChildren applies what became of child runs. All of them count before one ends the run, or
// before a step does that failed by a result or a signal: after that nobody takes in what they
// returned, and a clean-up would not know what there is to release.
func applyChildren(d *draft) {
	taken, left := false, false
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if d.plan.Steps[i].Run == nil || s.ChildRun == nil || !status.InFlight(s.Phase) {
			continue
		}
		c := d.in.Children[s.ChildRun.Name]
		applyChild(d, i, &c)
		over := status.Ended(s.Phase)
		taken, left = taken || over, left || c.Finished && !over
	}
	d.resultsFirst = leavesSome(d, taken, left)
	endIfDone(d)
}

func applyChild(d *draft, i int, c *Child) {
	if s := &d.st.Steps[i]; s.ChildRun.UID == "" {
		childUnconfirmed(d, i, s.ChildRun, c)
		return
	}
	switch {
	case c.State == ChildThere && c.UID == d.st.Steps[i].ChildRun.UID:
		childEnded(d, i, c)
	case c.State == ChildThere, c.State == ChildGone: // also if another one has its name
		stepFailed(d, i, report.ChildDeleted(d.st.Steps[i].ChildRun.Name), v1alpha1.ReasonStepFailed)
	}
}

// childUnconfirmed is for a child that status names without a uid.
func childUnconfirmed(d *draft, i int, named *v1alpha1.ChildRunStatus, c *Child) {
	switch c.State {
	case ChildThere:
		named.UID = bounds.Cut(c.UID, bounds.MaxCodeChars)
		childEnded(d, i, c)
	case ChildTaken:
		childFailed(d, i, facts.CodeNameTaken, c.Cause)
	case ChildRefused:
		childFailed(d, i, facts.CodeInvalidSpec, c.Cause)
	case ChildUnknown, ChildGone, ChildPostponed:
	}
}

// childEnded gives a step the end of its child, if it has ended.
func childEnded(d *draft, i int, c *Child) {
	if !c.Finished {
		return
	}
	code := facts.CodeChildFailed
	switch c.Phase {
	case v1alpha1.RunSucceeded:
		childSucceeded(d, i, c)
		return
	case v1alpha1.RunCancelled:
		code = facts.CodeChildCancelled
	case v1alpha1.RunTimedOut:
		code = facts.CodeChildTimedOut
	case v1alpha1.RunFailed, v1alpha1.RunPending, v1alpha1.RunQueued, v1alpha1.RunRunning, v1alpha1.RunSuspended:
	}
	childFailed(d, i, code, c.Reason+": "+c.Message)
}

func childFailed(d *draft, i int, code, why string) {
	s := &d.st.Steps[i]
	stepFailed(d, i, report.ChildFailed(code, s.ChildRun.Name, why), v1alpha1.ReasonStepFailed)
}

// childSucceeded makes the child's outputs the output of the step.
func childSucceeded(d *draft, i int, c *Child) {
	s := &d.st.Steps[i]
	output, problem := c.Output, ""
	if ref := c.OutputRef; ref != nil {
		p := d.in.Payloads[ref.Name]
		if p.Problem == "" && p.Data == nil {
			d.store.lack(&render.MissingError{Refs: []protocol.OutputRef{{Name: ref.Name, Digest: ref.Digest, Size: ref.Size}}})
			d.answers.await(status.JobID(d.run, s.Name, 1))
			return
		}
		output, problem = p.Data, p.Problem
	}
	if problem != "" {
		childFailed(d, i, facts.CodeResultRejected, "output: "+problem)
		return
	}
	kept, refused := d.store.keepOne(&Result{ID: status.JobID(d.run, s.Name, 1), Result: protocol.Result{Output: output}})
	switch {
	case kept.lacking: // the object store has to take it first
		d.answers.await(status.JobID(d.run, s.Name, 1))
		return
	case refused != nil:
		childFailed(d, i, refused.Code, refused.Message)
		return
	}
	d.store.used += len(bounds.Raw(kept.output))
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, kept.output, kept.ref, bounds.Micro(d.now)
	d.event(report.ChildSucceeded(s.Name, s.ChildRun.Name))
}
