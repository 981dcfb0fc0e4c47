// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// lockConditions describe the lease of a write under the lock, or of a forced end.
func (r *Report) lockConditions() {
	if r.found.End != nil {
		r.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionTrue, v1alpha1.ReasonLockReleased, "The run ended; its lock is not needed any more")
	} else {
		r.renewedCondition()
	}
	c := status.Condition(r.st, v1alpha1.ConditionRunLockAbandoned)
	switch {
	case r.in.Lock.Lost != "":
		r.abandon()
	case c == nil:
		r.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonNotAbandoned, "")
	case c.Status == metav1.ConditionTrue && r.in.Lock.State == facts.LockHeld:
		// Each loss is told once, so whoever writes under a lease and has none to tell
		// took over later.
		r.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonRecovered, "A later lease took over from one that was lost ("+c.Reason+")")
	}
}

// renewedCondition says how the lease of this write fares. Its message names counts, causes and
// moments, never durations.
func (r *Report) renewedCondition() {
	was := status.ReasonOf(r.st, v1alpha1.ConditionRunLockRenewed)
	is, reason, message := renewed(&r.in.Lock)
	r.set(v1alpha1.ConditionRunLockRenewed, is, reason, message)
	switch {
	case reason == was:
	case Failing(reason):
		r.warn(reason, message)
	case reason == v1alpha1.ReasonLockRenewed && Failing(was):
		r.detail(reason, "The run lock was renewed again")
	}
}

func renewed(l *facts.Lock) (is metav1.ConditionStatus, reason, message string) {
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

// Failing says whether a reason of RunLockRenewed means that a lease is held which
// cannot be renewed.
func Failing(reason string) bool {
	return reason == v1alpha1.ReasonRenewalFailing || reason == v1alpha1.ReasonContinuingUnlocked
}

// Abandoned says whether status has a lost lease, and no later one.
func Abandoned(st *v1alpha1.WorkflowRunStatus) bool {
	c := status.Condition(st, v1alpha1.ConditionRunLockAbandoned)
	return c != nil && c.Status == metav1.ConditionTrue
}

// LeaseLost says that this process lost a lease of a run which it leaves alone.
func (r *Report) LeaseLost() {
	r.abandon()
	if r.in.Lock.State == facts.LockBusy { // or the lease that was lost would be said to be held
		r.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionFalse, v1alpha1.ReasonLockBusy, r.in.Lock.Message)
	}
}

// abandon says that this process lost a lease of the run.
func (r *Report) abandon() {
	reason := r.in.Lock.Lost
	if !conditionReason.MatchString(reason) {
		reason = v1alpha1.ReasonOwnershipLost // a reason that the API server would refuse must not block the write
	}
	if !Abandoned(r.st) {
		r.warn(v1alpha1.ConditionRunLockAbandoned, "The lease of the run was lost: "+r.in.Lock.Lost)
	}
	r.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionTrue, reason, "A lease of "+r.in.Lock.Holder+" was lost while it worked under it")
}

var conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)

// StoreMessage says that Redis cannot be used.
func StoreMessage(l *facts.Lock) string { return "The run lock cannot be taken: " + l.Message }

// Waits are those of a run whose lock cannot be taken.
func (r *Report) Waits(reason, message string) {
	if !sameWait(status.Condition(r.st, v1alpha1.ConditionRunLockRenewed), reason, message) {
		r.warn(reason, message)
	}
	r.admission()
	r.set(v1alpha1.ConditionRunLockRenewed, metav1.ConditionFalse, reason, message)
	switch {
	case status.Condition(r.st, v1alpha1.ConditionRunLockAbandoned) != nil:
	case r.in.Lock.Lost != "":
		r.abandon()
	default:
		r.set(v1alpha1.ConditionRunLockAbandoned, metav1.ConditionFalse, v1alpha1.ReasonNotAbandoned, "")
	}
	r.set(v1alpha1.ConditionFinished, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "")
	r.set(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonWaitingForLock, message)
	r.set(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonWaitingForLock, bounds.Cut(message, bounds.MaxToolChars))
	r.set(v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonWaitingForLock, "")
	r.deadLetterDefault()
}

// sameWait says whether a condition tells of the same wait: for Redis, or for the same holder.
func sameWait(was *metav1.Condition, reason, message string) bool {
	return was != nil && was.Reason == reason && (reason != v1alpha1.ReasonLockBusy || head(was.Message) == head(message))
}

// SaysWaits says whether the persisted status tells all of it already.
func (r *Report) SaysWaits(reason, message string) bool {
	if !sameWait(status.Condition(r.st, v1alpha1.ConditionRunLockRenewed), reason, message) ||
		status.ReasonOf(r.st, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonWaitingForLock {
		return false
	}
	suspended := status.ReasonOf(r.st, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonSuspended
	return status.Admitted(r.st) || suspended == r.run.Spec.Suspend
}
