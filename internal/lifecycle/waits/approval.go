// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// approval waits until somebody decides by a StepApproval, or until the time to decide is over.
var approval = Kind{
	Field: "approval", Phase: v1alpha1.StepWaiting, Reason: v1alpha1.ReasonWaitingForApproval, Outside: true,

	Is: func(step *v1alpha1.Step) bool { return step.Approval != nil },
	Problem: func(step *v1alpha1.Step, _ metav1.Time) (at, problem string) {
		if n := step.Approval.TimeoutSeconds; n != nil && *n < 1 {
			return ".timeoutSeconds", fmt.Sprintf("%d is not positive", *n)
		}
		return "", ""
	},
	Bytes: func(step *v1alpha1.Step) int { return len(step.Approval.Message) },

	End: func(step *v1alpha1.Step, s *v1alpha1.StepStatus) time.Time {
		if step.Approval == nil {
			return time.Time{}
		}
		return after(s, step.Approval.TimeoutSeconds)
	},
	Answer:  decided,
	TimeOut: undecided,

	Began: func(step *v1alpha1.Step, s *v1alpha1.StepStatus) Event {
		text := fmt.Sprintf("Step %s waits for an approval", s.Name)
		if step.Approval.Message != "" {
			text += ": " + bounds.Printable(step.Approval.Message, bounds.MaxMessageChars)
		}
		return Event{v1alpha1.ReasonWaitingForApproval, text}
	},
	Text: func(s *v1alpha1.StepStatus, at func(*metav1.MicroTime) string) string {
		return "waits for an approval since " + at(s.StartedAt)
	},
	Means: "waits for an approval",
	Doing: "waits for an approval",
	Then:  func(step *v1alpha1.Step) string { return "if nobody decides, it is " + onTimeout(step) },
	Over: func(step *v1alpha1.Step) string {
		return fmt.Sprintf("%s is %s, as nobody decided", step.Name, onTimeout(step))
	},
}

// decided is what a StepApproval makes of the step.
func decided(s *v1alpha1.StepStatus, by facts.Signal) Outcome {
	said := &v1alpha1.ApprovalStatus{
		Decision: by.Decision, Approver: by.Approver, Name: by.Name, Comment: by.Comment, DecidedAt: *bounds.Micro(by.At),
	}
	if by.Decision != v1alpha1.Approve {
		return Outcome{Approval: said, Error: &v1alpha1.StepError{Code: facts.CodeRejected, Message: withComment("rejected by "+by.Approver, by.Comment)}}
	}
	return Outcome{Approval: said, Output: by.Output, Event: approved(s, withComment("approved by "+by.Approver, by.Comment))}
}

// undecided is what becomes of the step when nobody decided in time.
func undecided(step *v1alpha1.Step, s *v1alpha1.StepStatus, end time.Time) Outcome {
	seconds := *step.Approval.TimeoutSeconds
	said := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Reject, DecidedAt: *bounds.Micro(end)}
	if step.Approval.OnTimeout == v1alpha1.Approve {
		said.Decision = v1alpha1.Approve
		return Outcome{Approval: said, Event: approved(s, fmt.Sprintf("approved, since nobody decided within %d s", seconds))}
	}
	return Outcome{Approval: said, Error: &v1alpha1.StepError{
		Code: facts.CodeApprovalTimeout, Message: fmt.Sprintf("nobody decided within %d s of %s", seconds, bounds.TimeText(s.StartedAt)),
	}}
}

// onTimeout is what a step is when nobody decides.
func onTimeout(step *v1alpha1.Step) string {
	if step.Approval.OnTimeout == v1alpha1.Approve {
		return "approved"
	}
	return "rejected"
}

func approved(s *v1alpha1.StepStatus, how string) Event {
	return Event{"StepApproved", fmt.Sprintf("Step %s: %s", s.Name, how)}
}

func withComment(text, comment string) string {
	if comment == "" {
		return text
	}
	return text + ": " + comment
}
