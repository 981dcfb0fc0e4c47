// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"unicode/utf8"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// Admitted is the event of a run that has a slot of its tenant.
func Admitted(tenant string) Event {
	return newEvent(EventNormal, v1alpha1.ReasonAdmitted, "Admitted for tenant "+tenant)
}

// ChildAdmitted is the event of a child run that its parent names.
func ChildAdmitted(st *v1alpha1.WorkflowRunStatus) Event {
	return newEvent(EventNormal, v1alpha1.ReasonAdmitted, "Admitted"+slotText(st))
}

// Suspended is the event of a run that begins no more jobs.
func Suspended(in *facts.Input) Event {
	return newDetail(v1alpha1.ReasonSuspended, "No new jobs while "+suspensionOf(in).is)
}

// Resumed is the event of a run that is not suspended any more.
func Resumed() Event { return newDetail("Resumed", "New jobs may start") }

// StepWaits is an event of a step that waits: it begins, or succeeded.
func StepWaits(e waits.Event) Event { return newDetail(e.Reason, e.Message) }

// StepSkipped is the event of a step that is not wanted.
func StepSkipped(step string) Event {
	return newDetail("StepSkipped", fmt.Sprintf("Step %s was skipped: its when expression is false", step))
}

// ChildStarted is the event of a step that begins as a child run.
func ChildStarted(step, child string) Event {
	return newDetail("StepStarted", fmt.Sprintf("Step %s begins as child run %s", step, child))
}

// ChildSucceeded is the event of a step whose child run succeeded.
func ChildSucceeded(step, child string) Event {
	return newDetail("StepSucceeded", fmt.Sprintf("Step %s: child run %s succeeded", step, child))
}

// StepSucceeded is the event of a step whose job succeeded.
func StepSucceeded(s *v1alpha1.StepStatus) Event {
	return newDetail("StepSucceeded", fmt.Sprintf("Step %s succeeded (attempt %d)", s.Name, s.Attempt))
}

// StepBacksOff is the event of a failed attempt that is followed by another.
func StepBacksOff(s *v1alpha1.StepStatus) Event {
	return newEvent(EventWarning, "StepBackingOff", fmt.Sprintf("Step %s: attempt %d failed, next one at %s: %s",
		s.Name, s.Attempt, bounds.TimeText(s.NextAttemptAt), ErrorText(s.Error)))
}

// StepPostponed is the event of a worker that asked to be asked later; wish is from RetryWish.
func StepPostponed(s *v1alpha1.StepStatus, wish string) Event {
	return newDetail("StepBackingOff", fmt.Sprintf("Step %s: the worker of attempt %d %s; it comes at %s",
		s.Name, s.Attempt, wish, bounds.TimeText(s.NextAttemptAt)))
}

// StepFailed is the event of a step that failed for good, and does not end its run by that.
func StepFailed(s *v1alpha1.StepStatus) Event {
	return newEvent(EventWarning, "StepFailed", failureText(s))
}

// ResultRejected is the event of a result that is unusable.
func ResultRejected(message string) Event {
	return newEvent(EventWarning, v1alpha1.ReasonResultRejected, message)
}

// ItemsStarted is the event of a step that begins as one job for each item.
func ItemsStarted(step string, items int, topic string) Event {
	return newDetail("StepStarted", fmt.Sprintf("Step %s: %d items, for topic %s", step, items, topic))
}

// ItemsSucceeded is the event of a step whose items are all over.
func ItemsSucceeded(step string, st *v1alpha1.ForEachStatus) Event {
	text := fmt.Sprintf("Step %s succeeded with %d items", step, st.Total)
	if st.Failed > 0 {
		text += fmt.Sprintf(", %d of them failed", st.Failed)
	}
	return newDetail("StepSucceeded", text)
}

// ItemsBackOff is the event of items whose attempts failed in this decision, with the last error.
func ItemsBackOff(step string, items *itemset.Set, last string) Event {
	return newEvent(EventWarning, "ItemsBackingOff", itemsText(step, items, "are tried again", last))
}

// ItemsPostponed is the event of items whose workers asked in this decision to be asked later; last
// is the last of them, from WishOfItem.
func ItemsPostponed(step string, items *itemset.Set, last string) Event {
	return newDetail("ItemsBackingOff", itemsText(step, items, "come again", last))
}

// ItemsFailed is the event of items that failed for good in this decision, with the last error.
func ItemsFailed(step string, items *itemset.Set, last string) Event {
	return newEvent(EventWarning, "ItemsFailed", itemsText(step, items, "failed", last))
}

// itemsText is bounded by leaving out items: status lists them, and the cause is nowhere else once
// the next one has its place.
func itemsText(step string, items *itemset.Set, what, last string) string {
	begin, end := fmt.Sprintf("Step %s: items ", step), " "+what
	if last != "" {
		end += "; " + last
	}
	room := bounds.MaxMessageChars - utf8.RuneCountInString(begin+end)
	return bounds.Cut(begin+listOf(items, room)+end, bounds.MaxMessageChars)
}

// Ended is the event of a run that ended, or of what went wrong while its finally steps ran.
func Ended(e End) Event {
	if e.Phase == v1alpha1.RunSucceeded {
		return newEvent(EventNormal, e.Reason, e.Message)
	}
	return newEvent(EventWarning, e.Reason, e.Message)
}

// Finalizing is the event of an end that is announced: the finally steps are next.
func Finalizing(in *facts.Input, suspended bool, e End) Event {
	what := "its finally steps run"
	if suspended {
		what = "its finally steps begin if " + suspensionOf(in).end + " in time"
	}
	return newDetail(v1alpha1.ReasonFinalizing, fmt.Sprintf("The run is about to end as %s (%s); %s: %s", e.Phase, e.Reason, what, e.Message))
}
