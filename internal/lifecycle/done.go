// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// endIfDone ends the run when a step failed whose failure ends it, or when nothing is left to do.
// Without its Workflow nobody knows that: see missTemplate.
func endIfDone(d *draft) {
	switch {
	case d.in.Template.Missing != "":
	case d.st.Ending != nil:
		endIfCleanedUp(d)
	case d.failure != nil:
		endSoon(d, report.FailedByStep(d.failure.reason, &d.st.Steps[d.failure.step]))
	default:
		endIfAllOver(d)
	}
}

// endIfNoneFailed ends the run when nothing is left to do. A failure ends it later in the same
// decision, with applyChildren: what else is at hand counts first.
func endIfNoneFailed(d *draft) {
	if d.st.Ending != nil || d.failure == nil && failedBefore(d) == nil {
		endIfDone(d)
	}
}

// endSoon ends spec.steps for a reason that lets what is at hand count first, and does so with the
// next decision where this one could not load all of it: see finish.
func endSoon(d *draft, e report.End) {
	if d.resultsFirst {
		d.endsNext = true
		return
	}
	finish(d, e)
}

// leavesSome says whether the run is not to end with this decision for a failure or a cancel,
// because it left results of steps under way, or ends of child runs, to the next one. It took
// others, so each decision leaves fewer: nothing begins meanwhile. taken and left are
// of child runs.
func leavesSome(d *draft, taken, left bool) bool {
	if !d.store.postponed || d.in.Lock.State != LockHeld || d.in.Form != FormFull {
		return false
	}
	for k, v := range d.out.Verdicts {
		i, known := d.plan.Index[d.in.Results[k].ID.Step]
		taken = taken || v == Applied
		left = left || v == Waiting && known && !status.Ended(d.st.Steps[i].Phase)
	}
	return taken && left
}

// failedBefore is the step that ends the run by an earlier decision, which left results, or ends of
// child runs, to this one: see endSoon. nil: there is none.
func failedBefore(d *draft) *v1alpha1.StepStatus {
	if d.run.Spec.Shutdown != "" {
		return nil // that came first, or does as well
	}
	for i := range min(d.plan.Main, len(d.st.Steps)) {
		if s := &d.st.Steps[i]; s.Phase == v1alpha1.StepFailed && fatal(d, i) {
			return s
		}
	}
	return nil
}

// failureReason is why a run failed with a step.
func failureReason(e *v1alpha1.StepError) string {
	if e != nil && e.Code == facts.CodeOutputTooLarge {
		return v1alpha1.ReasonOutputTooLarge
	}
	return v1alpha1.ReasonStepFailed
}

// endIfAllOver ends the run when the last of spec.steps is over.
func endIfAllOver(d *draft) {
	if s := failedBefore(d); s != nil {
		endSoon(d, report.FailedByStep(failureReason(s.Error), s))
		return
	}
	for i := range min(d.plan.Main, len(d.st.Steps)) {
		if !d.plan.Lets(i, d.st.Steps[i].Phase) {
			return
		}
	}
	if d.plan.Main == 0 || len(d.st.Steps) == 0 {
		return // not yet validated, or refused by it in a moment
	}
	if returnOutputs(d) {
		finish(d, report.StepsSucceeded(d.st.Steps, d.plan.Main))
		return
	}
	d.answers.await(outputsID(d.run)) // its time is not over for that
}

// endIfCleanedUp ends the run when its finally steps are over, or wait for one that failed.
func endIfCleanedUp(d *draft) {
	for i := d.plan.Main; i < len(d.st.Steps); i++ {
		if !status.Ended(d.st.Steps[i].Phase) && !blocked(d, i) {
			return
		}
	}
	for i := d.plan.Main; i < len(d.st.Steps); i++ {
		s := &d.st.Steps[i]
		if s.Phase == v1alpha1.StepFailed && d.plan.Steps[i].OnFailure != v1alpha1.FailureContinue {
			endAsAnnounced(d, report.FailedByStep(v1alpha1.ReasonStepFailed, s))
			return
		}
	}
	e := d.st.Ending
	endRun(d, report.End{Phase: e.Phase, Reason: e.Reason, Message: e.Message})
}

// blocked says whether a finally step waits for one that failed, directly or not.
func blocked(d *draft, i int) bool {
	if d.st.Steps[i].Phase != v1alpha1.StepPending {
		return false
	}
	for _, j := range d.plan.Ancestors(i) {
		if status.Ended(d.st.Steps[j].Phase) && !d.plan.Lets(j, d.st.Steps[j].Phase) {
			return true
		}
	}
	return false
}

// endAsAnnounced ends a run whose clean-up failed: as announced, but a success becomes a failure
// for that reason.
func endAsAnnounced(d *draft, failed report.End) {
	if d.st.Ending.Phase == v1alpha1.RunSucceeded {
		endRun(d, failed)
		return
	}
	d.event(report.Ended(failed))
	endRun(d, report.CleanUpFailed(d.st.Ending, failed.Message))
}

// returnOutputs evaluates spec.outputs and says whether the run has succeeded by that: false if it
// failed, or if what the expressions read has to be loaded, or what they made to be stored, first.
func returnOutputs(d *draft) bool {
	if d.run.Spec.Outputs == nil {
		return true
	}
	if d.asked {
		return false // what it lacked a moment ago it still lacks
	}
	d.asked = true
	output, err := d.view.Returned(bounds.Raw(d.run.Spec.Outputs))
	if leaveForNext(d, err) {
		return false
	}
	if err != nil {
		if d.outputsLack = d.store.lack(err); !d.outputsLack {
			finish(d, report.OutputsFailed(err.Error()))
		}
		return false
	}
	kept, problem := d.store.keep(&Result{ID: outputsID(d.run), Result: protocol.Result{Output: output}})
	switch {
	case kept.lacking:
		d.outputsLack = true
		return false
	case problem != nil:
		finish(d, report.OutputsFailed("outputs: "+problem.Message))
		return false
	}
	d.store.used += len(bounds.Raw(kept.output))
	d.st.Outputs, d.st.OutputsRef = kept.output, kept.ref
	return true
}

// outputsID names the outputs of a run as if they were those of a job. A step of that name does no
// harm: an object's name has the digest of its content.
func outputsID(run *v1alpha1.WorkflowRun) protocol.JobID { return status.JobID(run, "outputs", 1) }
