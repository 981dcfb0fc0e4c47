// SPDX-License-Identifier: Apache-2.0

package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// maxShortChars is what of a condition's message stays in the short form.
const maxShortChars = 128

// cutToForm leaves out of an end what there is no room for, and says so.
func (r *Report) cutToForm() {
	switch r.in.Form {
	case facts.FormFull:
		return
	case facts.FormShort:
		Short(r.st)
	case facts.FormBare:
		bare(r.st)
	}
	r.warn(v1alpha1.ReasonObjectTooLarge, status.LeftOut+" (too many labels, or other metadata): outputs and details of the steps are left out")
}

// Short is a status without what programs need least.
func Short(st *v1alpha1.WorkflowRunStatus) {
	for i := range st.Steps {
		s := &st.Steps[i]
		s.Output, s.OutputRef, s.DispatchedAt, s.StartedAt, s.DelayedUntil = nil, nil, nil, nil, nil
		if s.Error != nil {
			s.Error.Message = ""
		}
		if s.Approval != nil {
			s.Approval.Comment = ""
		}
		if s.ForEach != nil {
			s.ForEach.FailedItems = ""
		}
		if s.ChildRun != nil {
			s.StartedAt = s.CompletedAt // a step that is a child run has one
		}
	}
	if st.Ending != nil {
		st.Ending.Message = ""
	}
	for i := range st.Conditions {
		c := &st.Conditions[i]
		c.Message = bounds.Cut(c.Message, maxShortChars)
		if c.Type == v1alpha1.ConditionSucceeded {
			c.Message = status.LeftOut + "; " + c.Message
		}
	}
}

// bare is the least that a run which ended has to have: what rules of the API refer to, who is to
// give up what, and all conditions. It is smaller than any status of a run under way, which has
// steps or a message, and more about its conditions, lock and policy. So it fits wherever the last
// write did, whatever was added to the object since. (TestABareEndFitsWhereTheLastWriteDid)
func bare(st *v1alpha1.WorkflowRunStatus) {
	st.ObservedGeneration, st.Progress, st.MinWriterVersion = 0, "", 0
	st.Steps, st.Outputs, st.OutputsRef, st.Ending, st.StartedAt, st.Policy = nil, nil, nil, nil, nil, nil
	st.Checkpoint = nil
	st.Lock = &v1alpha1.RunLockStatus{LeaseID: st.Lock.LeaseID}
	all := st.Conditions
	st.Conditions = nil
	for _, c := range all {
		message := ""
		if c.Type == v1alpha1.ConditionSucceeded || c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue {
			message = status.LeftOut
		}
		st.Conditions = append(st.Conditions, metav1.Condition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: message, LastTransitionTime: c.LastTransitionTime,
		})
	}
}
