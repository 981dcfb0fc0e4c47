// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Parent is what was seen of the parent that a run claims to have
// (v1alpha1.WorkflowRun.ClaimsParent). None of Named, Over, Terminated and Gone changes back, but
// Terminated of a run that its parent leaves at its clean-up, so they may come from a cache; but
// that a parent is gone is only known from a live read.
type Parent struct {
	Claim      v1alpha1.ParentStatus // as it is pinned
	Tenant     string                // that of the parent; "" if it has none yet
	Named      bool                  // its status names this run, by name and uid, as the child of a step
	Over       string                // why it does not wait for this run any more, to go on after its name; "" if it may
	Terminated bool                  // it is to end at once, or did: so does this run
	Gone       bool                  // it does not exist any more
	Suspended  bool
	NeedsNewer int32 // the version that this core lacks to read what the parent says; 0: it lacks none
}

// SeenParent is what a run sees of the parent that it claims; parent nil: that is gone. nil: the
// run claims none.
func SeenParent(run, parent *v1alpha1.WorkflowRun) *Parent {
	claim := run.ClaimsParent()
	if claim == nil {
		return nil
	}
	p := &Parent{Claim: *claim}
	if parent == nil || string(parent.UID) != claim.UID {
		p.Over, p.Gone, p.Terminated = "is gone", true, !keptForCleanUp(run, claim)
		// an owner reference is of any length, and status refuses longer ones
		p.Claim.Name, p.Claim.UID = bounds.Cut(claim.Name, bounds.MaxNameChars), bounds.Cut(claim.UID, bounds.MaxUIDChars)
		return p
	}
	p.Claim.Root, p.Claim.Level = rootOf(parent), min(levelOf(parent)+1, bounds.MaxLevel)
	p.Terminated, p.Suspended = parent.Spec.Shutdown == v1alpha1.ShutdownTerminate, parent.Spec.Suspend
	st := parent.Status
	if st == nil {
		return p
	}
	p.Tenant, p.Suspended = st.Tenant, p.Suspended || st.Phase == v1alpha1.RunSuspended
	p.NeedsNewer = parent.NeedsNewer()
	p.names(st, run)
	if status.Finished(parent) {
		reason := status.ReasonOf(st, v1alpha1.ConditionSucceeded)
		p.Over = fmt.Sprintf("ended as %s (%s)", st.Phase, reason)
		p.Terminated = p.Terminated || reason == v1alpha1.ReasonTerminated && !leftAtCleanUp(run, parent)
	}
	p.Suspended = p.Suspended && p.Over == "" // else the run cleans up, and the pause of a parent may have no end
	return p
}

// leftAtCleanUp says whether a run goes on though its parent ended as it was deleted: it is at its
// clean-up, and the garbage collector is about to take it out of what that owns. Whether the
// collector or the operator gets there first is chance: keptForCleanUp is the same a moment later.
func leftAtCleanUp(run, parent *v1alpha1.WorkflowRun) bool {
	leaves := parent.DeletionTimestamp != nil && slices.Contains(parent.Finalizers, metav1.FinalizerOrphanDependents)
	return leaves && run.Status != nil && run.Status.Ending != nil
}

// keptForCleanUp says whether a run goes on though its parent is gone: it is at its clean-up, and
// the deletion of the parent took it out of what that owned (kubectl delete --cascade=orphan). Any
// other ends as its parent did. The garbage collector would stop it midway, and the locks of the
// parent are with others.
func keptForCleanUp(run *v1alpha1.WorkflowRun, claim *v1alpha1.ParentStatus) bool {
	owned := slices.ContainsFunc(run.OwnerReferences, func(o metav1.OwnerReference) bool { return string(o.UID) == claim.UID })
	return !owned && run.Status != nil && run.Status.Ending != nil
}

// names looks for the step whose child the run is. The write that named the child had the locks
// that it is inside of.
func (p *Parent) names(st *v1alpha1.WorkflowRunStatus, run *v1alpha1.WorkflowRun) {
	for i := range st.Steps {
		s := &st.Steps[i]
		if s.ChildRun == nil || s.ChildRun.Name != run.Name {
			continue
		}
		p.Named, p.Claim.Below = s.ChildRun.UID == string(run.UID), s.ChildRun.Below
		p.Claim.Locks = slices.Concat(Above(st), st.Locks, s.Locks)
		switch {
		case status.Ended(s.Phase):
			p.Over = fmt.Sprintf("does not wait for it: step %s is %s", s.Name, s.Phase)
		case s.ChildRun.UID != "" && !p.Named:
			p.Over = fmt.Sprintf("has another run of this name as the child of step %s", s.Name)
		}
		return
	}
}

// levelOf says how deep a run is nested; the run at the top is 1.
func levelOf(run *v1alpha1.WorkflowRun) int32 {
	switch {
	case run.Status == nil || run.Status.Parent == nil:
		return 1
	case run.Status.Parent.Level == 0:
		return 2 // pinned by an operator that did not count
	default:
		return run.Status.Parent.Level
	}
}

// rootOf is the run at the top of a run that is a parent.
func rootOf(parent *v1alpha1.WorkflowRun) string {
	if parent.Status != nil && parent.Status.Parent != nil && parent.Status.Parent.Root != "" {
		return parent.Status.Parent.Root
	}
	return parent.Name
}
