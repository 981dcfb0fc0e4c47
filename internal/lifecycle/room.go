package lifecycle

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// leftOut begins what is said of an end that is not written in full.
const leftOut = "The object has no room for the rest of its status"

// maxShortChars is what of a condition's message stays in the short form.
const maxShortChars = 128

// noRoom ends a run whose status cannot grow: the API server refused a write for its size, and not for one of its results.
func (d *decider) noRoom() {
	if d.in.Form == FormFull {
		return
	}
	const why = "the object leaves no room for its status: it has too many labels, or other metadata"
	if d.st.Ending != nil {
		d.endAsAnnounced(v1alpha1.ReasonObjectTooLarge, why)
		return
	}
	d.end(v1alpha1.RunFailed, v1alpha1.ReasonObjectTooLarge, why)
}

// cutToForm leaves out of an end what there is no room for, and says so.
func (d *decider) cutToForm() {
	switch d.in.Form {
	case FormFull:
		return
	case FormShort:
		short(&d.st)
	case FormBare:
		bare(&d.st)
	}
	d.event(EventWarning, v1alpha1.ReasonObjectTooLarge, leftOut+" (too many labels, or other metadata): outputs and details of the steps are left out")
}

// short is a status without what programs need least.
func short(st *v1alpha1.WorkflowRunStatus) {
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
			c.Message = leftOut + "; " + c.Message
		}
	}
}

// bare is the least that a run which ended has to have: what rules of the API refer to, who is to give up what, and all conditions. It
// is smaller than any status of a run under way, which has steps or a message, and more about its conditions, lock and policy.
// So it fits wherever the last write did, whatever was added to the object since. (TestABareEndFitsWhereTheLastWriteDid)
func bare(st *v1alpha1.WorkflowRunStatus) {
	st.ObservedGeneration, st.Progress, st.MinWriterVersion = 0, "", 0
	st.Steps, st.Outputs, st.OutputsRef, st.Ending, st.StartedAt, st.Policy = nil, nil, nil, nil, nil, nil
	st.Lock = &v1alpha1.RunLockStatus{LeaseID: st.Lock.LeaseID}
	all := st.Conditions
	st.Conditions = nil
	for _, c := range all {
		message := ""
		if c.Type == v1alpha1.ConditionSucceeded || c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue {
			message = leftOut
		}
		st.Conditions = append(st.Conditions, metav1.Condition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: message, LastTransitionTime: c.LastTransitionTime,
		})
	}
}
