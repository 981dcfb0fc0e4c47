package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// applyApprovals applies decisions about the steps that wait for one.
func applyApprovals(d *draft) {
	for i := range d.st.Steps {
		if d.st.Steps[i].Phase == v1alpha1.StepWaiting {
			approveIfDecided(d, i)
		}
	}
	endIfDone(d)
}

// approveIfDecided applies the first decision about a step.
func approveIfDecided(d *draft, i int) {
	if a := decisionOn(d, i); a != nil {
		approve(d, i, a)
	}
}

// decisionOn is the first decision about a step, also while its output is on its way to the object
// store; nil: there is none, or it was made when the time to decide was over.
func decisionOn(d *draft, i int) *Approval {
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

func approve(d *draft, i int, a *Approval) {
	s, said := &d.st.Steps[i], d.texts.saidBy(a)
	if a.Decision != v1alpha1.Approve {
		d.texts.setApproval(s, said)
		stepFailed(d, i, report.RejectedBy(said), v1alpha1.ReasonStepFailed)
		return
	}
	kept, problem := d.store.keep(&Result{ID: approvalID(d.run, s.Name), Result: protocol.Result{Output: a.Output}})
	switch {
	case kept.lacking:
		return // the object store has to take it first
	case problem != nil:
		d.texts.setApproval(s, said)
		stepFailed(d, i, *problem, v1alpha1.ReasonStepFailed)
		return
	}
	d.texts.setApproval(s, said)
	d.store.used += len(bounds.Raw(kept.output))
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, kept.output, kept.ref, bounds.Micro(d.now)
	d.event(report.StepApproved(s.Name, said))
}

// approvalID names the output of an approval as if it were that of a job.
func approvalID(run *v1alpha1.WorkflowRun, step string) protocol.JobID {
	return status.JobID(run, step, 1)
}

// approvalOver decides an approval that nobody decided in time.
func approvalOver(d *draft, i int, at time.Time) {
	s, approval := &d.st.Steps[i], d.plan.Steps[i].Approval
	said := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Reject, DecidedAt: *bounds.Micro(at)}
	s.Approval = said
	if approval.OnTimeout == v1alpha1.Approve {
		said.Decision = v1alpha1.Approve
		s.Phase, s.CompletedAt = v1alpha1.StepSucceeded, bounds.Micro(d.now)
		d.event(report.StepApprovedByTimeout(s.Name, *approval.TimeoutSeconds))
		return
	}
	stepFailed(d, i, report.ApprovalTimedOut(*approval.TimeoutSeconds, s), v1alpha1.ReasonStepFailed)
}
