// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// deadLetters is about results that are put aside: those that were rejected, and those that the
// shell gives up on. The event goes with the write that reports them first. The shell gives the
// same ones again where the answer to a write was lost, or the dead letter could not be stored:
// that changes nothing. One that was rejected does not take the place of one that the shell gave up
// on: its step and an event say so, too, and a rollout would count the run again with the next.
func (r *Report) deadLetters() {
	if r.found.Rejected != "" && status.ReasonOf(r.st, v1alpha1.ConditionDeadLettered) != v1alpha1.ReasonDeliveriesExhausted {
		r.set(v1alpha1.ConditionDeadLettered, metav1.ConditionTrue, v1alpha1.ReasonResultRejected, r.found.Rejected)
	}
	fresh := r.found.DeadLetters
	if len(fresh) == 0 {
		r.deadLetterDefault()
		return
	}
	l := newList("")
	for i := range fresh {
		dead := &fresh[i]
		l.add(fmt.Sprintf("Result of step %s, attempt %d: put aside after %d failed deliveries, the last one with: %s",
			stepOf(dead.ID), dead.ID.Attempt, dead.Failures, bounds.Printable(dead.Cause, bounds.MaxMessageChars/2)))
	}
	message := l.text(bounds.MaxMessageChars)
	c := status.Condition(r.st, v1alpha1.ConditionDeadLettered)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonDeliveriesExhausted || c.Message != message {
		r.warn(v1alpha1.ReasonDeliveriesExhausted, message)
	}
	r.set(v1alpha1.ConditionDeadLettered, metav1.ConditionTrue, v1alpha1.ReasonDeliveriesExhausted, message)
}

// stepOf names the step of an attempt, and its item if it has one.
func stepOf(id protocol.JobID) string {
	if id.Item == protocol.NoItem {
		return id.Step
	}
	return id.Step + ", item " + id.Item
}
