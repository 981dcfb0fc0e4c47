package lifecycle

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// endIfDone ends the run when a step failed whose failure ends it, or when nothing is left to do.
func (d *decider) endIfDone() {
	switch {
	case d.st.Ending != nil:
		d.endIfCleanedUp()
	case d.failure != nil:
		d.finish(v1alpha1.RunFailed, d.failure.reason, failureText(&d.st.Steps[d.failure.step]))
	default:
		d.endIfAllOver()
	}
}

// endIfAllOver ends the run when the last of spec.steps is over.
func (d *decider) endIfAllOver() {
	for i := range min(d.plan.Main, len(d.st.Steps)) {
		s := &d.st.Steps[i]
		switch {
		case s.Phase == v1alpha1.StepFailed && d.fatal(i):
			d.finish(v1alpha1.RunFailed, v1alpha1.ReasonStepFailed, failureText(s))
			return
		case !d.plan.Lets(i, s.Phase):
			return
		}
	}
	if d.plan.Main == 0 || len(d.st.Steps) == 0 {
		return // not yet validated, or refused by it in a moment
	}
	if d.returnOutputs() {
		d.finish(v1alpha1.RunSucceeded, v1alpha1.ReasonSucceeded, successText(d.st.Steps[:d.plan.Main], len(d.st.Steps)-d.plan.Main))
	}
}

// shutdown ends the run as its user wishes. Once the finally steps run, Cancel has nothing left to change.
func (d *decider) shutdown() {
	switch d.run.Spec.Shutdown {
	case v1alpha1.ShutdownTerminate:
		d.end(v1alpha1.RunCancelled, v1alpha1.ReasonTerminated, "spec.shutdown is Terminate; "+stateText(d.st.Steps, nothingMore))
	case "":
	default: // Cancel, and whatever a later version may add: the wish is to end
		if d.st.Ending != nil {
			return
		}
		d.finish(v1alpha1.RunCancelled, v1alpha1.ReasonCancelled, "spec.shutdown is Cancel; "+stateText(d.st.Steps, nothingMore))
	}
}

// deadlines ends a run that took too long since it was admitted or, where that clock was started, waited too long before; and one whose
// finally steps took too long.
func (d *decider) deadlines() {
	if d.runTimedOut(status.ActiveDeadline(d.run, &d.st)) {
		d.finish(v1alpha1.RunTimedOut, v1alpha1.ReasonDeadlineExceeded, fmt.Sprintf(
			"activeDeadlineSeconds (%d) passed since the admission at %s; %s", *d.run.Spec.ActiveDeadlineSeconds,
			d.st.Admission.AdmittedAt.UTC().Format(time.RFC3339), stateText(d.st.Steps, nothingMore)))
		return
	}
	if d.runTimedOut(status.FinallyEnd(d.run, &d.st)) {
		d.cleanUpTimedOut()
		return
	}
	if d.st.Admission != nil && d.st.Admission.QueuedAt != nil {
		d.queueDeadline()
	}
}

// queueDeadline ends a run that waited too long for its admission. Without the lock this also holds for a run that was never
// written; with it such a run is admitted instead, however late.
func (d *decider) queueDeadline() {
	if at := status.QueueEnd(d.run, &d.st); !at.IsZero() && !d.now.Before(at) {
		d.end(v1alpha1.RunTimedOut, v1alpha1.ReasonQueueTimeout, fmt.Sprintf(
			"not admitted within queueTimeoutSeconds (%d)%s", *d.run.Spec.QueueTimeoutSeconds, d.whyLocked()))
	}
}

func (d *decider) whyLocked() string {
	c := status.Condition(&d.st, v1alpha1.ConditionAdmitted)
	switch d.in.Lock.State {
	case LockUnavailable:
		return ": the run lock cannot be taken: " + d.in.Lock.Message
	case LockBusy:
		return ": the run lock is busy"
	case LockHeld:
		if c != nil && c.Status == metav1.ConditionFalse {
			return ": " + c.Message
		}
	}
	return ""
}

// end ends the run: unfinished steps are cancelled, jobs in flight withdrawn. See finish for a run that may have finally steps.
func (d *decider) end(phase v1alpha1.RunPhase, reason, message string) {
	d.over = true
	if d.in.Form == FormBare && phase == v1alpha1.RunSucceeded && d.run.Spec.Outputs != nil {
		phase, reason, message = v1alpha1.RunFailed, v1alpha1.ReasonObjectTooLarge, "its steps succeeded, but its outputs do not fit"
	}
	d.cancelSteps(len(d.st.Steps))
	d.st.Phase, d.st.CompletedAt = phase, bounds.Second(d.now)
	d.outcome = outcome{phase: phase, reason: reason, message: message}
	kind := EventWarning
	if phase == v1alpha1.RunSucceeded {
		kind = EventNormal
	}
	d.event(kind, reason, message)
}

// cancelSteps cancels the unfinished ones of the first n steps.
func (d *decider) cancelSteps(n int) {
	for i := range min(n, len(d.st.Steps)) {
		s := &d.st.Steps[i]
		if status.Ended(s.Phase) {
			continue
		}
		if status.WithWorker(s) {
			d.withdraw(i)
		}
		d.dropItems(i)
		s.Phase, s.CompletedAt, s.NextAttemptAt = v1alpha1.StepCancelled, bounds.Micro(d.now), nil
	}
}

// decideFinished is the decision about an ended run: it stays as it is until its time to live is over.
func decideFinished(in Input) Decision {
	// All attempts are over, which is all that status can say of results that are put aside.
	out := Decision{Status: stored(in.Run), Verdicts: make([]Verdict, len(in.Results)), Told: len(in.DeadLetters) > 0}
	var index map[string]int
	if len(in.Results) > 0 {
		index = dag.Of(in.Run).Index
	}
	for k := range in.Results {
		i, verdict := judge(in.Run, in.Run.Status.Steps, index, in.Results[k].ID)
		if verdict == Applied {
			verdict = Duplicate
		}
		if out.unapplied(k, &in.Results[k], in.Run.Status.Steps, i, verdict) == Ahead {
			verdict = Stale // nothing about this run will ever be applied
		}
		out.Verdicts[k] = verdict
	}
	at := status.Expiry(in.Run, in.Run.Status)
	switch {
	case at.IsZero():
	case in.Now.Before(at):
		out.Wake = at
	default:
		out.Delete = true
	}
	return out
}
