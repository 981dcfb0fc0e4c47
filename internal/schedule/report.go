// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// report says in status what people read.
func (d *draft) report() {
	d.Status.Active = int32(d.busy() - d.tried())
	d.nextSlots()
	if d.Again {
		return // conditions are those of before until the slots of before are decided
	}
	d.Status.ObservedGeneration = d.Schedule.Generation
	status, reason, message := d.ready()
	d.condition(v1alpha1.ConditionReady, status, reason, message)
	stalled := metav1.ConditionFalse
	if status == metav1.ConditionFalse && (reason != v1alpha1.ReasonTemplateRefused || d.Refused != "") {
		stalled = metav1.ConditionTrue // only a change by somebody ends it, which is not so with Doubt
	}
	if d.Unasked && reason == v1alpha1.ReasonScheduled {
		stalled = metav1.ConditionUnknown // so that who takes over does not take it for accepted
	}
	d.condition(v1alpha1.ConditionStalled, stalled, reason, message)
	if now := StartsNone(&v1alpha1.Schedule{Status: d.Status}); now == v1alpha1.SlotTemplateRefused && StartsNone(d.Schedule) != now {
		d.Begun = now
	}
}

// StartsNone is why no run of a schedule is started until somebody does something, as its status
// says; empty: some are. Where its template is refused for good it is not held: its slots are
// decided.
func StartsNone(s *v1alpha1.Schedule) v1alpha1.SlotReason {
	if s.Status == nil {
		return ""
	}
	stalled := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionStalled)
	if s.Status.Held == "" && stalled != nil && stalled.Status == metav1.ConditionTrue && stalled.Reason == v1alpha1.ReasonTemplateRefused {
		return v1alpha1.SlotTemplateRefused
	}
	return s.Status.Held
}

func (d *draft) condition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: d.Schedule.Generation, LastTransitionTime: stamp(d.Now.Truncate(time.Second)),
	})
}

func (d *draft) ready() (status metav1.ConditionStatus, reason, message string) {
	switch d.Status.Held {
	case v1alpha1.SlotStopped:
		return metav1.ConditionTrue, v1alpha1.ReasonStopped, "spec.stopWhen is true: no more runs are started"
	case v1alpha1.SlotInvalidSpec:
		return metav1.ConditionFalse, v1alpha1.ReasonInvalidSchedule, d.Invalid
	case v1alpha1.SlotSuspended:
		message := "spec.suspend is set: no runs are started, and slots are not caught up with"
		if d.Invalid != "" {
			message += "; spec is not valid: " + d.Invalid
		}
		return metav1.ConditionTrue, v1alpha1.ReasonScheduleSuspended, message
	case v1alpha1.SlotPaused:
		return metav1.ConditionFalse, v1alpha1.ReasonPaused, fmt.Sprintf("%d runs failed in a row: a change of spec ends the pause", d.Status.Failures)
	default:
	}
	if why := cmp.Or(d.Refused, d.Doubt); why != "" {
		return metav1.ConditionFalse, v1alpha1.ReasonTemplateRefused, why
	}
	if wait := d.Status.DecidedUntil.Sub(d.Now); wait > time.Minute {
		return metav1.ConditionTrue, v1alpha1.ReasonScheduled, "the clock was set back: slots until " + d.local(d.Status.DecidedUntil.Time) + " are decided"
	}
	return metav1.ConditionTrue, v1alpha1.ReasonScheduled, cmp.Or(d.Stuck, "runs are started at each slot")
}

// nextSlots shows the next slots, and says when the first is due.
func (d *draft) nextSlots() {
	d.Status.Next = nil
	if d.Status.Held != "" || d.Was == nil {
		return
	}
	at := d.Status.DecidedUntil.Time
	for range shown {
		slot, ok := d.Was.Next(at)
		if !ok {
			return
		}
		if len(d.Status.Next) == 0 {
			d.Wake = d.due(slot)
		}
		d.Status.Next = append(d.Status.Next, d.local(slot))
		at = slot
	}
}

// local is a time as people of the schedule's zone write it.
func (d *draft) local(t time.Time) string {
	if d.Was == nil {
		return t.UTC().Format(time.RFC3339)
	}
	return d.Was.In(t).Format(time.RFC3339)
}
