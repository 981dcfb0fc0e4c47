package lifecycle

import (
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// outcome is why and how a run ended.
type outcome struct {
	phase           v1alpha1.RunPhase
	reason, message string
}

// progressConditions are those of a run under way, written under the lock.
func (d *decider) progressConditions() {
	reason, message := d.waitsFor()
	d.set(v1alpha1.ConditionFinished, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "")
	d.set(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, reason, message)
	d.set(v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, "")
	d.set(v1alpha1.ConditionStalled, metav1.ConditionFalse, reason, "")
	d.deadLetterDefault()
}

// endConditions are those of a run that ended in this decision.
func (d *decider) endConditions() {
	won := d.outcome.phase == v1alpha1.RunSucceeded
	d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionTrue, v1alpha1.ReasonLockReleased, "The run ended; its lock is not needed any more")
	d.set(v1alpha1.ConditionFinished, metav1.ConditionTrue, d.outcome.reason, d.outcome.message)
	d.set(v1alpha1.ConditionSucceeded, conditionStatus(won), d.outcome.reason, d.outcome.message)
	d.set(v1alpha1.ConditionReconciling, metav1.ConditionFalse, d.outcome.reason, "")
	d.set(v1alpha1.ConditionStalled, conditionStatus(!won), d.outcome.reason, "")
	d.deadLetterDefault()
}

func (d *decider) admittedCondition() {
	switch {
	case admitted(&d.st):
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionTrue, v1alpha1.ReasonAdmitted,
			"Admitted at "+d.st.Admission.AdmittedAt.UTC().Format(time.RFC3339))
	case d.over:
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionUnknown, v1alpha1.ReasonAdmissionPending, "The run ended before it was admitted")
	case d.run.Spec.Suspend:
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "spec.suspend is set")
	default:
		d.set(v1alpha1.ConditionAdmitted, metav1.ConditionUnknown, v1alpha1.ReasonAdmissionPending, "Waits for admission")
	}
}

// lockConditions describe the lease of this write. It compares with the lease of the last one, so it runs before that is replaced.
func (d *decider) lockConditions() {
	l := &d.in.Lock
	switch {
	case l.State != LockHeld: // a forced end: endConditions say Released
	case l.RenewalFailures > 0:
		d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionFalse, v1alpha1.ReasonRenewalFailing, "The last renewals failed; the lease is still valid")
	case l.Renewed:
		d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionTrue, v1alpha1.ReasonLockRenewed, "Held by "+l.Holder)
	default:
		d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionTrue, v1alpha1.ReasonLockHeld, "Held by "+l.Holder)
	}
	c := condition(&d.st, v1alpha1.ConditionRunLockAbandoned)
	switch {
	case l.Lost != "":
		d.abandoned(l.Lost)
	case c == nil:
		d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonNotAbandoned, "")
	case c.Status == metav1.ConditionTrue && l.State == LockHeld && (d.st.Lock == nil || d.st.Lock.LeaseID != l.LeaseID):
		d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonRecovered, "A later lease took over from one that was lost ("+c.Reason+")")
	}
}

func (d *decider) abandoned(lost string) {
	reason := lost
	if !conditionReason.MatchString(lost) {
		reason = v1alpha1.ReasonOwnershipLost // a reason that the API server would refuse must not block the write
	}
	if reasonOf(&d.st, v1alpha1.ConditionRunLockAbandoned) != reason {
		d.event(EventWarning, v1alpha1.ConditionRunLockAbandoned, "The lease of the run was lost: "+lost)
	}
	d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionTrue, reason, "A lease of "+d.in.Lock.Holder+" was lost while it worked under it")
}

var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)

func (d *decider) deadLettered(message string) {
	d.set(v1alpha1.ConditionDeadLettered, metav1.ConditionTrue, v1alpha1.ReasonResultRejected, message)
	d.event(EventWarning, v1alpha1.ReasonResultRejected, message)
}

func (d *decider) deadLetterDefault() {
	if c := condition(&d.st, v1alpha1.ConditionDeadLettered); c != nil {
		c.ObservedGeneration = d.run.Generation
		return
	}
	d.set(v1alpha1.ConditionDeadLettered, metav1.ConditionFalse, v1alpha1.ReasonNoDeadLetters, "No result with a valid token was put aside")
}

// waitForStore says that the lock cannot be taken. It is written without the lock, so it touches neither fence nor lock nor
// steps; and once only, whatever the cause is called the next time. A run that was suspended before its admission and is not any
// more starts its queue clock here: with the store down that is the only trace of the moment.
func (d *decider) waitForStore() {
	resumed := reasonOf(&d.st, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonSuspended && !d.run.Spec.Suspend
	d.st = stored(d.run)
	if d.storeKnownDown() {
		return
	}
	if resumed && d.st.Admission == nil {
		d.st.Admission = &v1alpha1.AdmissionStatus{QueuedAt: secondPointer(d.now)}
	}
	if d.run.Status == nil {
		d.st.Progress = progress(nil, len(d.run.Spec.Steps))
	}
	d.st.ObservedGeneration = d.run.Generation
	if !admitted(&d.st) {
		d.st.Phase = v1alpha1.RunPending
		if d.run.Spec.Suspend {
			d.st.Phase, d.st.Admission = v1alpha1.RunSuspended, nil
		}
	}
	message := "The run lock cannot be taken: " + d.in.Lock.Message
	if reasonOf(&d.st, v1alpha1.ConditionRunLockRenewed) != v1alpha1.ReasonLockStoreUnavailable {
		d.event(EventWarning, v1alpha1.ReasonLockStoreUnavailable, message)
	}
	d.admittedCondition()
	d.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionFalse, v1alpha1.ReasonLockStoreUnavailable, message)
	if condition(&d.st, v1alpha1.ConditionRunLockAbandoned) == nil {
		d.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonNotAbandoned, "")
	}
	d.set(v1alpha1.ConditionFinished, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "")
	d.set(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonWaitingForLock, message)
	d.set(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonWaitingForLock, "")
	d.set(v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonWaitingForLock, "")
	d.deadLetterDefault()
}

// storeKnownDown says whether the persisted status tells all of it already.
func (d *decider) storeKnownDown() bool {
	if reasonOf(&d.st, v1alpha1.ConditionRunLockRenewed) != v1alpha1.ReasonLockStoreUnavailable ||
		reasonOf(&d.st, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonWaitingForLock {
		return false
	}
	suspended := reasonOf(&d.st, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonSuspended
	return admitted(&d.st) || suspended == d.run.Spec.Suspend
}

// set writes a condition; its transition time changes only with its status.
func (d *decider) set(kind string, status metav1.ConditionStatus, reason, message string) {
	next := metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: cut(message, maxProblemsChars),
		ObservedGeneration: d.run.Generation, LastTransitionTime: secondTime(d.now),
	}
	c := condition(&d.st, kind)
	if c == nil {
		d.st.Conditions = append(d.st.Conditions, next)
		return
	}
	if c.Status == status {
		next.LastTransitionTime = c.LastTransitionTime
	}
	*c = next
}

func condition(st *v1alpha1.WorkflowRunStatus, kind string) *metav1.Condition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == kind {
			return &st.Conditions[i]
		}
	}
	return nil
}

func reasonOf(st *v1alpha1.WorkflowRunStatus, kind string) string {
	if c := condition(st, kind); c != nil {
		return c.Reason
	}
	return ""
}

func conditionStatus(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
