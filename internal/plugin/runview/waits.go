// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

const (
	maxAskChars           = 200 // what an approval asks, and a comment
	defaultFinallySeconds = 300 // where spec did not pass an API server
)

// What spec.finallyTimeoutSeconds is of a run that follows a Workflow whose revision, which has
// that time, is not known. No API server takes such a number.
const (
	RevisionGone   int32 = -1 // the revision does not exist
	RevisionUnread int32 = -2 // it may not, or could not, be read
)

// asks is what an approval that waits wants to be told.
func (s *step) asks(now time.Time) string {
	text := s.waiting(now)
	if m := s.message(); m != "" {
		text += ": " + m
	}
	return text
}

func (s *step) message() string {
	if s.spec.Approval == nil {
		return ""
	}
	return Printable(s.spec.Approval.Message, maxAskChars)
}

// command decides the step.
func (s *step) command(run *v1alpha1.WorkflowRun) string {
	return fmt.Sprintf("kubectl syncopate approve %s %s -n %s", run.Name, s.spec.Name, run.Namespace)
}

// decided is who decided an approval, and how.
func (s *step) decided(now time.Time) string {
	if s.status.Approval == nil {
		return ""
	}
	return Decided(s.status.Approval, now)
}

// Decided tells of a decision: "approved by jane at T (1h ago): comment".
func Decided(a *v1alpha1.ApprovalStatus, now time.Time) string {
	did := string(a.Decision)
	switch a.Decision {
	case v1alpha1.Approve:
		did = "approved"
	case v1alpha1.Reject:
		did = "rejected"
	}
	by := " by " + Printable(a.Approver, maxErrorChars)
	if a.Approver == "" {
		by = ", as nobody decided in time,"
	}
	text := fmt.Sprintf("%s%s at %s", did, by, when(a.DecidedAt.Time, now))
	if a.Comment != "" {
		text += ": " + Printable(a.Comment, maxAskChars)
	}
	return text
}

// failed is how a step failed.
func (s *step) failed() string {
	if s.kind() == KindJob {
		return fmt.Sprintf("failed at attempt %d", s.status.Attempt)
	}
	return "failed"
}

// shrug tells that a failure did not stop the run.
func (s *step) shrug() string {
	if s.spec.OnFailure == v1alpha1.FailureContinue {
		return "the run goes on all the same (onFailure Continue)"
	}
	return ""
}

// ripe is when a wait ends by time alone, and how; nil: it does not.
func (s *step) ripe() (at *time.Time, what string) {
	k := waits.In(s.status.Phase)
	if k == nil {
		return nil, ""
	}
	end := k.End(s.spec, &s.status)
	if end.IsZero() {
		return nil, ""
	}
	return utc(end), k.Over(s.spec)
}

// waiting is what a step that waits does, as its kind says; "": it does not wait.
func (s *step) waiting(now time.Time) string {
	k := waits.In(s.status.Phase)
	if k == nil {
		return ""
	}
	text := k.Text(&s.status, func(at *metav1.MicroTime) string {
		if at == nil {
			return "?"
		}
		return when(at.Time, now)
	})
	return strings.TrimPrefix(text, "is ")
}

// waitFact tells of a step that waits, and of what time alone brings.
func (v *viewer) waitFact(s *step, f *Fact) {
	k := waits.In(s.status.Phase)
	if k == nil {
		return
	}
	f.Text, f.Since = k.Doing, microTime(s.status.StartedAt)
	if at, _ := s.ripe(); at != nil {
		f.Until, f.Then = at, k.Then(s.spec)
	}
}

// approvalFact tells what is asked, and how to answer. One command is enough for people.
func (v *viewer) approvalFact(s *step, f *Fact) {
	v.waitFact(s, f)
	if m := s.message(); m != "" {
		f.Text += ": " + m
	}
	v.asked = append(v.asked, s)
}

// ending tells how a run will end whose finally steps run.
func (v *viewer) ending() {
	e := v.st.Ending
	if e == nil {
		return
	}
	text := fmt.Sprintf("the run will end as %s (%s)", e.Phase, e.Reason)
	if e.Message != "" {
		text += ": " + Printable(e.Message, maxTextChars/2)
	}
	f := Fact{About: "ending", Text: text, Since: microTime(&e.AnnouncedAt)}
	if f.Until = v.finallyDeadline(); f.Until != nil {
		f.Then = "the finally steps that are not over are cancelled"
	}
	v.add(f)
	v.noTemplate()
}

// noTemplate tells that the time of the finally steps is not known, and what ends the run then.
func (v *viewer) noTemplate() {
	f := Fact{About: "ending"}
	switch v.run.Spec.FinallyTimeoutSeconds {
	case RevisionGone:
		f.Text = "the time of the finally steps is in " + revisionOf(v.st) + ", which is gone: it does not end the run before that is made again"
		v.advise("to end it without its revision, which Cancel and time do not: set spec.shutdown to Terminate, or delete the run")
	case RevisionUnread:
		f.Text = "the time of the finally steps is in " + revisionOf(v.st) + ", which could not be read: when it ends is not known"
	default:
		return
	}
	v.add(f)
}

// revisionOf names the one that a run follows.
func revisionOf(st *v1alpha1.WorkflowRunStatus) string {
	if is := st.Workflow; is != nil {
		return "revision " + is.Revision + " of Workflow " + is.Name
	}
	return "the revision of its Workflow"
}

// finallyDeadline is when the finally steps are out of time; nil: they do not run yet, or their
// time is not known.
func (v *viewer) finallyDeadline() *time.Time {
	bound := v.run.Spec.FinallyTimeoutSeconds
	if v.st.Ending == nil || bound == RevisionGone || bound == RevisionUnread {
		return nil
	}
	if bound <= 0 {
		bound = defaultFinallySeconds
	}
	return utc(v.st.Ending.AnnouncedAt.Add(time.Duration(bound) * time.Second))
}
