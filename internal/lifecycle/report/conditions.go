// SPDX-License-Identifier: Apache-2.0

package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Written is about a write under the lock, or one that ends the run or announces its end.
func (r *Report) Written() {
	r.admission()
	switch {
	case r.found.End != nil || r.in.Lock.State == facts.LockHeld:
		r.lockConditions()
	case r.in.Lock.Lost != "":
		r.abandon()
	}
	if r.found.End != nil {
		r.ended()
		r.cutToForm()
		return
	}
	r.progress()
	if r.in.Lock.State == facts.LockUnavailable { // the finally steps begin when the lock is to be had
		r.Waits(v1alpha1.ReasonLockStoreUnavailable, StoreMessage(&r.in.Lock))
	}
}

// progress is about a run under way.
func (r *Report) progress() {
	reason, message := r.waitsFor()
	r.set(v1alpha1.ConditionFinished, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "")
	r.set(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, reason, message)
	r.set(v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, bounds.Cut(message, bounds.MaxToolChars))
	r.set(v1alpha1.ConditionStalled, metav1.ConditionFalse, reason, "")
	r.deadLetters()
}

// ended is about a run that ended in this decision.
func (r *Report) ended() {
	won := r.found.End.Phase == v1alpha1.RunSucceeded
	r.set(v1alpha1.ConditionFinished, metav1.ConditionTrue, r.found.End.Reason, r.found.End.Message)
	r.set(v1alpha1.ConditionSucceeded, conditionStatus(won), r.found.End.Reason, r.found.End.Message)
	r.set(v1alpha1.ConditionReconciling, metav1.ConditionFalse, r.found.End.Reason, "")
	stalled := "" // of a run that is fine
	if !won {
		stalled = bounds.Cut(r.found.End.Message, bounds.MaxToolChars)
	}
	r.set(v1alpha1.ConditionStalled, conditionStatus(!won), r.found.End.Reason, stalled)
	r.deadLetters()
}

func (r *Report) deadLetterDefault() {
	if c := status.Condition(r.st, v1alpha1.ConditionDeadLettered); c != nil {
		c.ObservedGeneration = r.run.Generation
		return
	}
	r.set(v1alpha1.ConditionDeadLettered, metav1.ConditionFalse, v1alpha1.ReasonNoDeadLetters, "No result with a valid token was put aside")
}

// set writes a condition; its transition time changes only with its status.
func (r *Report) set(kind string, is metav1.ConditionStatus, reason, message string) {
	next := metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: bounds.Printable(message, bounds.MaxProblemsChars),
		ObservedGeneration: r.run.Generation, LastTransitionTime: *bounds.Second(r.now),
	}
	c := status.Condition(r.st, kind)
	if c == nil {
		r.st.Conditions = append(r.st.Conditions, next)
		return
	}
	if c.Status == is {
		next.LastTransitionTime = c.LastTransitionTime
	}
	*c = next
}

func conditionStatus(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
