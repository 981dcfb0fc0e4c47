package lifecycle

import (
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// lockConditions describe the lease of a write under the lock, or of a forced end.
func (d *decider) lockConditions() {
	if d.over {
		d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionTrue, v1alpha1.ReasonLockReleased, "The run ended; its lock is not needed any more")
	} else {
		d.renewedCondition()
	}
	c := status.Condition(&d.st, v1alpha1.ConditionRunLockAbandoned)
	switch {
	case d.in.Lock.Lost != "":
		d.abandon()
	case c == nil:
		d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonNotAbandoned, "")
	case c.Status == metav1.ConditionTrue && d.in.Lock.State == LockHeld:
		// Each loss is told once, so whoever writes under a lease and has none to tell took over later.
		d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonRecovered, "A later lease took over from one that was lost ("+c.Reason+")")
	}
}

// renewedCondition says how the lease of this write fares. Its message names counts, causes and moments, never durations.
func (d *decider) renewedCondition() {
	was := status.ReasonOf(&d.st, v1alpha1.ConditionRunLockRenewed)
	status, reason, message := renewed(&d.in.Lock)
	d.set(v1alpha1.ConditionRunLockRenewed, status, reason, message)
	switch {
	case reason == was:
	case failing(reason):
		d.event(EventWarning, reason, message)
	case reason == v1alpha1.ReasonLockRenewed && failing(was):
		d.event(EventNormal, reason, "The run lock was renewed again")
	}
}

func renewed(l *Lock) (status metav1.ConditionStatus, reason, message string) {
	cause := bounds.Cut(l.RenewalCause, bounds.MaxMessageChars/2)
	switch {
	case !l.UnlockedSince.IsZero():
		return metav1.ConditionFalse, v1alpha1.ReasonContinuingUnlocked, fmt.Sprintf(
			"The lease ended at %s without a renewal (%s); the work goes on without the lock until the API server refuses a write or the lock was taken again",
			l.UnlockedSince.UTC().Format(time.RFC3339), cause)
	case l.RenewalFailures > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonRenewalFailing, fmt.Sprintf(
			"Renewals failed in a row: %d, the last one with: %s; the lease is still valid", l.RenewalFailures, cause)
	case l.Renewed:
		return metav1.ConditionTrue, v1alpha1.ReasonLockRenewed, "Held by " + l.Holder
	default:
		return metav1.ConditionTrue, v1alpha1.ReasonLockHeld, "Held by " + l.Holder
	}
}

// failing says whether a reason of RunLockRenewed means that a lease is held which cannot be renewed.
func failing(reason string) bool {
	return reason == v1alpha1.ReasonRenewalFailing || reason == v1alpha1.ReasonContinuingUnlocked
}

// RenewalFailing says whether status tells of a lease that cannot be renewed.
func RenewalFailing(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && failing(status.ReasonOf(run.Status, v1alpha1.ConditionRunLockRenewed))
}

// lockNews says whether the conditions of the run lock changed so that it is worth a write of its own: once per transition. How
// many renewals failed, and why the last one, rides along with other writes.
func (d *decider) lockNews() bool {
	before := &v1alpha1.WorkflowRunStatus{}
	if d.run.Status != nil {
		before = d.run.Status
	}
	was, is := status.ReasonOf(before, v1alpha1.ConditionRunLockRenewed), status.ReasonOf(&d.st, v1alpha1.ConditionRunLockRenewed)
	return lockHealth(was) != lockHealth(is) ||
		// A lease that is kept for the run shows that it is renewed; for a short one that would be a write per renewal.
		(d.in.Lock.ForRun && was == v1alpha1.ReasonLockHeld && is == v1alpha1.ReasonLockRenewed) ||
		abandoned(before) != abandoned(&d.st)
}

// lockHealth groups the reasons of RunLockRenewed: a transition between two groups is news.
func lockHealth(reason string) string {
	switch reason {
	case "", v1alpha1.ReasonRenewalFailing, v1alpha1.ReasonContinuingUnlocked, v1alpha1.ReasonLockStoreUnavailable:
		return reason
	default:
		return "healthy"
	}
}

// Abandoned says whether status tells that a lease of the run was lost, and not yet that another one took over.
func Abandoned(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && abandoned(run.Status)
}

func abandoned(st *v1alpha1.WorkflowRunStatus) bool {
	c := status.Condition(st, v1alpha1.ConditionRunLockAbandoned)
	return c != nil && c.Status == metav1.ConditionTrue
}

// abandon says that this process lost a lease of the run.
func (d *decider) abandon() {
	reason := d.in.Lock.Lost
	if !conditionReason.MatchString(reason) {
		reason = v1alpha1.ReasonOwnershipLost // a reason that the API server would refuse must not block the write
	}
	if !abandoned(&d.st) {
		d.event(EventWarning, v1alpha1.ConditionRunLockAbandoned, "The lease of the run was lost: "+d.in.Lock.Lost)
	}
	d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionTrue, reason, "A lease of "+d.in.Lock.Holder+" was lost while it worked under it")
}

var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)

// waitForLock leaves a run alone that somebody else may be writing, but for the news that a lease of this process was lost, which the holder
// cannot know, and that the lock has been waited for too long: a holder that is gone tells nobody. One that is there takes that back.
func (d *decider) waitForLock() {
	if d.in.Lock.Overdue {
		d.sayWaits(v1alpha1.ReasonLockBusy, d.in.Lock.Message)
		return
	}
	d.leaveAlone()
}

// leaveAlone keeps what is stored. A run that was never written has no conditions yet; its first write tells of a lease that was lost.
func (d *decider) leaveAlone() {
	d.st = stored(d.run)
	if d.in.Lock.Lost == "" || d.run.Unwritten() {
		return
	}
	d.abandon()
	if d.in.Lock.State == LockBusy { // or the lease that was lost would be said to be held
		d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionFalse, v1alpha1.ReasonLockBusy, d.in.Lock.Message)
	}
}

// waitForStore says that the lock cannot be taken because Redis cannot be used.
func (d *decider) waitForStore() { d.sayWaits(v1alpha1.ReasonLockStoreUnavailable, d.storeMessage()) }

// sayWaits says that the lock cannot be taken. It is written without the lock, so it touches neither fence nor lock nor
// steps; and once only, whatever the cause is called the next time. A run that was suspended before its admission and is not any
// more starts its queue clock here: with the store down that is the only trace of the moment.
func (d *decider) sayWaits(reason, message string) {
	resumed := status.ReasonOf(&d.st, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonSuspended && !d.run.Spec.Suspend
	d.leaveAlone()
	if d.saysWaits(reason, message) {
		return
	}
	if resumed && d.st.Admission == nil {
		d.st.Admission = &v1alpha1.AdmissionStatus{QueuedAt: bounds.Second(d.now)}
	}
	if d.run.Unwritten() {
		d.st.Progress = progress(nil, len(d.plan.Steps))
	}
	d.st.ObservedGeneration = d.run.Generation
	if !status.Admitted(&d.st) {
		if d.st.Phase != v1alpha1.RunQueued {
			d.st.Phase = v1alpha1.RunPending
		}
		if d.run.Spec.Suspend {
			d.st.Phase, d.st.Admission = v1alpha1.RunSuspended, nil
		}
	}
	d.waitConditions(reason, message)
}

func (d *decider) storeMessage() string { return "The run lock cannot be taken: " + d.in.Lock.Message }

// waitConditions are those of a run whose lock cannot be taken.
func (d *decider) waitConditions(reason, message string) {
	if !sameWait(status.Condition(&d.st, v1alpha1.ConditionRunLockRenewed), reason, message) {
		d.event(EventWarning, reason, message)
	}
	d.admittedCondition()
	d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionFalse, reason, message)
	switch {
	case status.Condition(&d.st, v1alpha1.ConditionRunLockAbandoned) != nil:
	case d.in.Lock.Lost != "":
		d.abandon()
	default:
		d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonNotAbandoned, "")
	}
	d.set(v1alpha1.ConditionFinished, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "")
	d.set(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonWaitingForLock, message)
	d.set(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonWaitingForLock, bounds.Cut(message, bounds.MaxToolChars))
	d.set(v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonWaitingForLock, "")
	d.deadLetterDefault()
}

// sameWait says whether a condition tells of the same wait: for Redis, or for the same holder.
func sameWait(was *metav1.Condition, reason, message string) bool {
	return was != nil && was.Reason == reason && (reason != v1alpha1.ReasonLockBusy || head(was.Message) == head(message))
}

// saysWaits says whether the persisted status tells all of it already.
func (d *decider) saysWaits(reason, message string) bool {
	if !sameWait(status.Condition(&d.st, v1alpha1.ConditionRunLockRenewed), reason, message) ||
		status.ReasonOf(&d.st, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonWaitingForLock {
		return false
	}
	suspended := status.ReasonOf(&d.st, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonSuspended
	return status.Admitted(&d.st) || suspended == d.run.Spec.Suspend
}

// SaysLockBusy says whether status tells that somebody waits for the run's lock.
func SaysLockBusy(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && status.ReasonOf(run.Status, v1alpha1.ConditionRunLockRenewed) == v1alpha1.ReasonLockBusy
}
