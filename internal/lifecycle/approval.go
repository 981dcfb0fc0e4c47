package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// AsksForApproval says whether decisions about a run are of interest: it goes on, and has approval steps.
func AsksForApproval(run *v1alpha1.WorkflowRun) bool {
	if run == nil || Finished(run) {
		return false
	}
	return slices.ContainsFunc(run.Spec.Steps, func(s v1alpha1.Step) bool { return s.Approval != nil })
}

// Approvals are the decisions about a run in the order in which they count: the oldest first.
func Approvals(run *v1alpha1.WorkflowRun, all []v1alpha1.StepApproval) []Approval {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b v1alpha1.StepApproval) int {
		if a.Precedes(&b) {
			return -1
		}
		return 1
	})
	var list []Approval
	for i := range all {
		if a := &all[i]; a.Means(run) {
			list = append(list, Approval{
				Name: a.Name, Step: a.Spec.Step, Decision: a.Spec.Decision, Approver: a.Spec.Approver,
				Comment: a.Spec.Comment, Output: outputOf(a), At: a.CreationTimestamp.Time,
			})
		}
	}
	return list
}

func outputOf(a *v1alpha1.StepApproval) json.RawMessage {
	if a.Spec.Output == nil {
		return nil
	}
	return a.Spec.Output.Raw
}

// approvals applies decisions about the steps that wait for one.
func (d *decider) approvals() {
	for i := range d.st.Steps {
		if d.st.Steps[i].Phase == v1alpha1.StepWaiting {
			d.approveIfDecided(i)
		}
	}
	d.endIfDone()
}

// approveIfDecided applies the first decision about a step.
func (d *decider) approveIfDecided(i int) {
	if a := d.decisionOn(i); a != nil {
		d.approve(i, a)
	}
}

// decisionOn is the first decision about a step, also while its output is on its way to the object store; nil: there is none, or it
// was made when the time to decide was over.
func (d *decider) decisionOn(i int) *Approval {
	s := &d.st.Steps[i]
	for k := range d.in.Approvals {
		if a := &d.in.Approvals[k]; a.Step == s.Name {
			end := status.ApprovalEnd(&d.plan.Steps[i], s)
			if !end.IsZero() && a.At.After(end) && !d.now.Before(end) {
				return nil
			}
			return a
		}
	}
	return nil
}

func (d *decider) approve(i int, a *Approval) {
	s, said := &d.st.Steps[i], d.saidBy(a)
	if a.Decision != v1alpha1.Approve {
		d.say(s, said)
		d.stepFailed(i, v1alpha1.StepError{Code: CodeRejected, Message: withComment("rejected by "+said.Approver, said.Comment)}, v1alpha1.ReasonStepFailed)
		return
	}
	kept, problem := d.keep(&Result{ID: approvalID(d.run, s.Name), Result: protocol.Result{Output: a.Output}})
	switch {
	case kept.lacking:
		return // the object store has to take it first
	case problem != nil:
		d.say(s, said)
		d.stepFailed(i, *problem, v1alpha1.ReasonStepFailed)
		return
	}
	d.say(s, said)
	d.outputBytes += len(bounds.Raw(kept.output))
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, kept.output, kept.ref, bounds.Micro(d.now)
	d.event(EventNormal, "StepApproved", fmt.Sprintf("Step %s: %s", s.Name, withComment("approved by "+said.Approver, said.Comment)))
}

// saidBy is a decision as status shows it: within a bound for the whole run, but with the beginning of each approver's name.
func (d *decider) saidBy(a *Approval) *v1alpha1.ApprovalStatus {
	left := max(0, bounds.MaxSaidBytes-d.saidBytes)
	fit := func(text string, chars, least int) string {
		text = bounds.CutStored(bounds.Cut(bounds.Printable(text), chars), max(left, least))
		left = max(0, left-bounds.StoredBytes(text))
		return text
	}
	return &v1alpha1.ApprovalStatus{
		Decision: a.Decision, DecidedAt: *bounds.Micro(a.At),
		Approver: fit(a.Approver, bounds.MaxNameChars, bounds.LeastNameBytes), Name: fit(a.Name, bounds.MaxNameChars, 0), Comment: fit(a.Comment, bounds.MaxCommentChars, 0),
	}
}

// say notes a decision in status.
func (d *decider) say(s *v1alpha1.StepStatus, said *v1alpha1.ApprovalStatus) {
	s.Approval = said
	d.saidBytes += bounds.StoredBytes(said.Approver) + bounds.StoredBytes(said.Name) + bounds.StoredBytes(said.Comment)
}

// approvalID names the output of an approval as if it were that of a job.
func approvalID(run *v1alpha1.WorkflowRun, step string) protocol.JobID {
	return status.JobID(run, step, 1)
}

func withComment(text, comment string) string {
	if comment == "" {
		return text
	}
	return text + ": " + comment
}

// approvalOver decides an approval that nobody decided in time.
func (d *decider) approvalOver(i int, at time.Time) {
	s, approval := &d.st.Steps[i], d.plan.Steps[i].Approval
	said := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Reject, DecidedAt: *bounds.Micro(at)}
	s.Approval = said
	if approval.OnTimeout == v1alpha1.Approve {
		said.Decision = v1alpha1.Approve
		s.Phase, s.CompletedAt = v1alpha1.StepSucceeded, bounds.Micro(d.now)
		d.event(EventNormal, "StepApproved", fmt.Sprintf("Step %s: approved, since nobody decided within %d s", s.Name, *approval.TimeoutSeconds))
		return
	}
	d.stepFailed(i, v1alpha1.StepError{
		Code: CodeApprovalTimeout, Message: fmt.Sprintf("nobody decided within %d s of %s", *approval.TimeoutSeconds, timeText(s.StartedAt)),
	}, v1alpha1.ReasonStepFailed)
}
