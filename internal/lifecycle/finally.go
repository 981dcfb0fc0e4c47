package lifecycle

import (
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// finish ends spec.steps: what is not over is cancelled. Then the run ends, or its finally steps run first. A run that was never
// admitted has nothing to clean up.
func (d *decider) finish(phase v1alpha1.RunPhase, reason, message string) {
	if len(d.run.Spec.Finally) == 0 || !status.Admitted(&d.st) || d.in.Form != FormFull {
		d.end(phase, reason, message)
		return
	}
	d.begun, d.failure = true, nil // the failure is told by the announcement, and ends nothing more
	d.cancelSteps(d.plan.Main)
	d.st.Ending = &v1alpha1.EndingStatus{
		Phase: phase, Reason: reason, Message: bounds.Cut(message, bounds.MaxMessageChars), AnnouncedAt: *bounds.Micro(d.now),
	}
	d.view.ending = d.st.Ending
	what := "its finally steps run"
	if d.run.Spec.Suspend {
		what = "its finally steps begin if " + d.suspension().end + " in time"
	}
	d.event(EventNormal, v1alpha1.ReasonFinalizing, fmt.Sprintf("The run is about to end as %s (%s); %s: %s", phase, reason, what, message))
}

// forcedBeginning is the write that announces an end without the lock: the finally steps begin when the lock is to be had.
func (d *decider) forcedBeginning() {
	d.writer()
	d.progressConditions()
	if d.in.Lock.State == LockUnavailable {
		d.waitConditions(v1alpha1.ReasonLockStoreUnavailable, d.storeMessage())
	}
}

// endIfCleanedUp ends the run when its finally steps are over, or wait for one that failed.
func (d *decider) endIfCleanedUp() {
	for i := d.plan.Main; i < len(d.st.Steps); i++ {
		if !status.Ended(d.st.Steps[i].Phase) && !d.blocked(i) {
			return
		}
	}
	for i := d.plan.Main; i < len(d.st.Steps); i++ {
		s := &d.st.Steps[i]
		if s.Phase == v1alpha1.StepFailed && d.plan.Steps[i].OnFailure != v1alpha1.FailureContinue {
			d.endAsAnnounced(v1alpha1.ReasonStepFailed, failureText(s))
			return
		}
	}
	e := d.st.Ending
	d.end(e.Phase, e.Reason, e.Message)
}

// blocked says whether a finally step waits for one that failed, directly or not.
func (d *decider) blocked(i int) bool {
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

// cleanUpTimedOut ends a run whose finally steps took too long.
func (d *decider) cleanUpTimedOut() {
	d.endAsAnnounced(v1alpha1.ReasonFinallyTimeout, fmt.Sprintf("finallyTimeoutSeconds (%d) passed since %s; %s",
		bounds.PositiveOr(d.run.Spec.FinallyTimeoutSeconds, bounds.DefaultFinallyTimeout),
		d.st.Ending.AnnouncedAt.UTC().Format(time.RFC3339), stateText(d.st.Steps, nothingMore)))
}

// endAsAnnounced ends a run whose clean-up failed: as announced, but a success becomes a failure for that reason.
func (d *decider) endAsAnnounced(reason, message string) {
	e := d.st.Ending
	if e.Phase == v1alpha1.RunSucceeded {
		d.end(v1alpha1.RunFailed, reason, message)
		return
	}
	d.event(EventWarning, reason, message)
	d.end(e.Phase, e.Reason, bounds.Cut(e.Message, bounds.MaxMessageChars/2)+"; then "+bounds.Cut(message, bounds.MaxMessageChars/2))
}
