package lifecycle

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
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
	d.set(v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, bounds.Cut(message, bounds.MaxToolChars))
	d.set(v1alpha1.ConditionStalled, metav1.ConditionFalse, reason, "")
	d.exhausted()
}

// endConditions are those of a run that ended in this decision.
func (d *decider) endConditions() {
	won := d.outcome.phase == v1alpha1.RunSucceeded
	d.set(v1alpha1.ConditionFinished, metav1.ConditionTrue, d.outcome.reason, d.outcome.message)
	d.set(v1alpha1.ConditionSucceeded, conditionStatus(won), d.outcome.reason, d.outcome.message)
	d.set(v1alpha1.ConditionReconciling, metav1.ConditionFalse, d.outcome.reason, "")
	stalled := "" // of a run that is fine
	if !won {
		stalled = bounds.Cut(d.outcome.message, bounds.MaxToolChars)
	}
	d.set(v1alpha1.ConditionStalled, conditionStatus(!won), d.outcome.reason, stalled)
	d.exhausted()
}

func (d *decider) deadLettered(message string) {
	d.set(v1alpha1.ConditionDeadLettered, metav1.ConditionTrue, v1alpha1.ReasonResultRejected, message)
	d.event(EventWarning, v1alpha1.ReasonResultRejected, message)
}

// exhausted tells of results that the shell is about to put aside. The event goes with the write that tells of them first: the same
// ones given again, because nobody knows whether a write took effect, or because the dead letter could not be stored, change nothing.
func (d *decider) exhausted() {
	fresh := d.freshLetters()
	d.out.Told = len(d.in.DeadLetters) > 0
	if len(fresh) == 0 {
		d.deadLetterDefault()
		return
	}
	l := newList("")
	for i := range fresh {
		dead := &fresh[i]
		l.add(fmt.Sprintf("Result of step %s, attempt %d: put aside after %d failed deliveries, the last one with: %s",
			dead.ID.Step, dead.ID.Attempt, dead.Failures, bounds.Cut(bounds.Printable(dead.Cause), bounds.MaxMessageChars/2)))
	}
	message := l.text(bounds.MaxMessageChars)
	c := status.Condition(&d.st, v1alpha1.ConditionDeadLettered)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonDeliveriesExhausted || c.Message != message {
		d.event(EventWarning, v1alpha1.ReasonDeliveriesExhausted, message)
	}
	d.set(v1alpha1.ConditionDeadLettered, metav1.ConditionTrue, v1alpha1.ReasonDeliveriesExhausted, message)
}

func (d *decider) deadLetterDefault() {
	if c := status.Condition(&d.st, v1alpha1.ConditionDeadLettered); c != nil {
		c.ObservedGeneration = d.run.Generation
		return
	}
	d.set(v1alpha1.ConditionDeadLettered, metav1.ConditionFalse, v1alpha1.ReasonNoDeadLetters, "No result with a valid token was put aside")
}

// set writes a condition; its transition time changes only with its status.
func (d *decider) set(kind string, is metav1.ConditionStatus, reason, message string) {
	next := metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: bounds.Cut(bounds.Printable(message), bounds.MaxProblemsChars),
		ObservedGeneration: d.run.Generation, LastTransitionTime: *bounds.Second(d.now),
	}
	c := status.Condition(&d.st, kind)
	if c == nil {
		d.st.Conditions = append(d.st.Conditions, next)
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
