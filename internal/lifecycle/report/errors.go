// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// TimedOut is the error of an attempt whose time is over.
func TimedOut(step *v1alpha1.Step, s *v1alpha1.StepStatus, in *facts.Input) v1alpha1.StepError {
	unheard := unheardText(&in.Answers, status.AttemptEnd(step, s), in.Now)
	if s.Phase == v1alpha1.StepRunning {
		return v1alpha1.StepError{Code: facts.CodeTimeout, Message: fmt.Sprintf(
			"no result within %s of the start at %s%s", status.AttemptTimeout(step), bounds.TimeText(s.StartedAt), unheard)}
	}
	return v1alpha1.StepError{Code: facts.CodeStartTimeout, Message: fmt.Sprintf(
		"no worker answered within %s of the dispatch at %s%s%s", status.StartTimeout(step), bounds.TimeText(s.DispatchedAt), noRoomText(in), unheard)}
}

// NoKind is the error of a step that is of no kind which this operator has.
func NoKind() v1alpha1.StepError {
	return v1alpha1.StepError{Code: facts.CodeInvalidSpec, Message: "this operator has no such kind of step"}
}

// ChildFailed is the error of a step whose child run did not succeed.
func ChildFailed(code, child, why string) v1alpha1.StepError {
	return v1alpha1.StepError{Code: code, Message: "child run " + child + ": " + why}
}

// ChildDeleted is the error of a step whose child run is gone.
func ChildDeleted(child string) v1alpha1.StepError {
	return ChildFailed(facts.CodeChildDeleted, child, "it was deleted before it ended")
}

// InputTooLarge is the error of a step whose input does not fit after evaluation.
func InputTooLarge(field string, n, limit int) *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: facts.CodeInputTooLarge, Message: fmt.Sprintf("%s has %d bytes after evaluation, more than %d", field, n, limit)}
}

// AttemptsExceeded is the error of a step, or an item, whose attempt numbers are used up.
func AttemptsExceeded() *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: facts.CodeAttemptsExceeded, Message: "no attempt number is left"}
}

// ItemsTooLarge is the error of a step whose items have more outputs than one object takes.
func ItemsTooLarge() *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: facts.CodeOutputTooLarge, Message: fmt.Sprintf(
		"the outputs of all items have more than %d bytes with this one", bounds.MaxItemsOutput)}
}

// OutputsLost is the error of a step whose items had outputs that are not in the object
// store any more.
func OutputsLost(why string) *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: facts.CodeOutputLost, Message: "outputs of items: " + why}
}

// OutputTooLarge is the error of a step whose output the object store does not take.
func OutputTooLarge(size int64) *v1alpha1.StepError {
	return &v1alpha1.StepError{Code: facts.CodeOutputTooLarge, Message: fmt.Sprintf(
		"the output has %d bytes, more than the %d that the object store takes of one step", size, protocol.MaxPayloadBytes)}
}

// RetryWish is what a worker asked for with Retry, and what bounds it.
func RetryWish(r protocol.Result, wait time.Duration) string {
	if r.RetryAfterMillis <= 0 {
		return "asked for a retry"
	}
	text := fmt.Sprintf("asked for a retry in %d ms", r.RetryAfterMillis)
	if r.RetryAfterMillis > wait.Milliseconds() && wait > bounds.MinRetryAfter {
		text += fmt.Sprintf(", more than the policy's %s", wait)
	}
	return text
}

// WishOfItem is RetryWish with the item.
func WishOfItem(item int, wish string) string {
	return fmt.Sprintf("the worker of item %d %s", item, wish)
}

// RejectedResult says which result is unusable, and why.
func RejectedResult(s *v1alpha1.StepStatus, why string) string {
	return fmt.Sprintf("result of step %s, attempt %d: %s", s.Name, s.Attempt, why)
}

// RejectedItem is RejectedResult for an item.
func RejectedItem(step string, item int, why string) string {
	return fmt.Sprintf("result of step %s, item %d: %s", step, item, why)
}

// OfItem is the error of an item as its step has it.
func OfItem(item int, e v1alpha1.StepError) v1alpha1.StepError {
	e.Message = strings.TrimSuffix(fmt.Sprintf("item %d: %s", item, e.Message), ": ")
	return e
}
