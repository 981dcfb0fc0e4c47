package lifecycle

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// endIfDone ends the run when a step failed, or when all passed.
func (d *decider) endIfDone() {
	if d.over {
		return
	}
	if d.failure != nil {
		d.end(v1alpha1.RunFailed, d.failure.reason, failureText(&d.st.Steps[d.failure.step]))
		return
	}
	skipped := 0
	for i := range d.st.Steps {
		switch {
		case d.st.Steps[i].Phase == v1alpha1.StepFailed:
			d.end(v1alpha1.RunFailed, v1alpha1.ReasonStepFailed, failureText(&d.st.Steps[i]))
			return
		case !passed(d.st.Steps[i].Phase):
			return
		case d.st.Steps[i].Phase == v1alpha1.StepSkipped:
			skipped++
		}
	}
	if len(d.st.Steps) == 0 {
		return // not yet validated
	}
	d.end(v1alpha1.RunSucceeded, v1alpha1.ReasonSucceeded, successText(len(d.st.Steps), skipped))
}

// shutdown ends the run as its user wishes. Terminate differs from Cancel only once there are clean-up steps.
func (d *decider) shutdown() {
	switch d.run.Spec.Shutdown {
	case v1alpha1.ShutdownTerminate:
		d.end(v1alpha1.RunCancelled, v1alpha1.ReasonTerminated, "spec.shutdown is Terminate; "+stateText(d.st.Steps))
	case "":
	default: // Cancel, and whatever a later version may add: the wish is to end
		d.end(v1alpha1.RunCancelled, v1alpha1.ReasonCancelled, "spec.shutdown is Cancel; "+stateText(d.st.Steps))
	}
}

// deadlines ends a run that took too long since it was admitted or, where that clock was started, waited too long before.
func (d *decider) deadlines() {
	if at := activeDeadline(d.run, &d.st); !at.IsZero() && !d.now.Before(at) {
		d.end(v1alpha1.RunTimedOut, v1alpha1.ReasonDeadlineExceeded, fmt.Sprintf(
			"activeDeadlineSeconds (%d) passed since the admission at %s; %s", *d.run.Spec.ActiveDeadlineSeconds,
			d.st.Admission.AdmittedAt.UTC().Format(time.RFC3339), stateText(d.st.Steps)))
		return
	}
	if d.st.Admission != nil && d.st.Admission.QueuedAt != nil {
		d.queueDeadline()
	}
}

// queueDeadline ends a run that waited too long for its admission. Without the lock this also holds for a run that was never
// written; with it such a run is admitted instead, however late.
func (d *decider) queueDeadline() {
	if at := queueEnd(d.run, &d.st); !at.IsZero() && !d.now.Before(at) {
		d.end(v1alpha1.RunTimedOut, v1alpha1.ReasonQueueTimeout, fmt.Sprintf(
			"not admitted within queueTimeoutSeconds (%d)%s", *d.run.Spec.QueueTimeoutSeconds, d.whyLocked()))
	}
}

func (d *decider) whyLocked() string {
	c := condition(&d.st, v1alpha1.ConditionAdmitted)
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

// end ends the run: unfinished steps are cancelled, jobs in flight withdrawn.
func (d *decider) end(phase v1alpha1.RunPhase, reason, message string) {
	d.over = true
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if ended(s.Phase) {
			continue
		}
		if inFlight(s.Phase) {
			d.withdraw(i)
		}
		s.Phase, s.CompletedAt, s.NextAttemptAt = v1alpha1.StepCancelled, microPointer(d.now), nil
	}
	d.st.Phase, d.st.CompletedAt = phase, secondPointer(d.now)
	d.outcome = outcome{phase: phase, reason: reason, message: message}
	kind := EventWarning
	if phase == v1alpha1.RunSucceeded {
		kind = EventNormal
	}
	d.event(kind, reason, message)
}

// decideFinished is the decision about an ended run: it stays as it is until its time to live is over.
func decideFinished(in Input) Decision {
	out := Decision{Status: stored(in.Run), Verdicts: make([]Verdict, len(in.Results))}
	var index map[string]int
	if len(in.Results) > 0 {
		index = planOf(in.Run.Spec.Steps).index
	}
	for k := range in.Results {
		i, verdict := judge(in.Run, in.Run.Status.Steps, index, in.Results[k].ID)
		if verdict == Ahead {
			verdict = Stale // nothing about this run will ever be applied
		}
		if verdict == Applied {
			verdict = Duplicate
		}
		if verdict == Duplicate {
			out.rejectAgain(k, &in.Results[k], &in.Run.Status.Steps[i])
		}
		out.Verdicts[k] = verdict
	}
	at := expiry(in.Run, in.Run.Status)
	switch {
	case at.IsZero():
	case in.Now.Before(at):
		out.Wake = at
	default:
		out.Delete = true
	}
	return out
}

// expiry is when a finished run is to be deleted; zero: never.
func expiry(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if run.Spec.TTLSecondsAfterFinished == nil || st.CompletedAt == nil {
		return time.Time{}
	}
	return st.CompletedAt.Add(seconds(*run.Spec.TTLSecondsAfterFinished))
}
