// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/retry"
)

// texts bounds what others said in a status: all errors of its steps, and all approvers.
type texts struct{ errors, said int } // as stored, in bytes

// count adds what a step has.
func (t *texts) count(s *v1alpha1.StepStatus) {
	if s.Error != nil {
		t.errors += bounds.StoredBytes(s.Error.Message)
	}
	if s.Approval != nil {
		t.said += saidBytes(s.Approval)
	}
}

func saidBytes(a *v1alpha1.ApprovalStatus) int {
	return bounds.StoredBytes(a.Approver) + bounds.StoredBytes(a.Name) + bounds.StoredBytes(a.Comment)
}

// setError gives a step an error, or none. Messages are kept within a budget for the whole run, so
// that status stays below its bound with 200 failing steps.
func (t *texts) setError(s *v1alpha1.StepStatus, e *v1alpha1.StepError) {
	if s.Error != nil {
		t.errors -= bounds.StoredBytes(s.Error.Message)
	}
	s.Error = e
	if e == nil {
		return
	}
	e.Code = retry.Code(e.Code)
	e.Message = bounds.CutStored(bounds.Printable(e.Message, bounds.MaxErrorChars), max(0, bounds.MaxErrorsBytes-t.errors))
	t.errors += bounds.StoredBytes(e.Message)
}

// fit is a signal with its texts as status has room for them: within the budget, but with the
// beginning of each approver's name.
func (t *texts) fit(a *Signal) Signal {
	left := max(0, bounds.MaxSaidBytes-t.said)
	cut := func(text string, chars, least int) string {
		text = bounds.CutStored(bounds.Printable(text, chars), max(left, least))
		left = max(0, left-bounds.StoredBytes(text))
		return text
	}
	said := *a
	said.Approver, said.Name = cut(a.Approver, bounds.MaxNameChars, bounds.LeastNameBytes), cut(a.Name, bounds.MaxNameChars, 0)
	said.Comment = cut(a.Comment, bounds.MaxCommentChars, 0)
	return said
}

// setApproval gives a step a decision.
func (t *texts) setApproval(s *v1alpha1.StepStatus, said *v1alpha1.ApprovalStatus) {
	s.Approval = said
	t.said += saidBytes(said)
}
