// SPDX-License-Identifier: Apache-2.0

package children

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// childIndex finds the children of a run; *results.Index does.
type childIndex interface {
	// ChildrenOf are the names of the unfinished runs that claim to be children of a run.
	ChildrenOf(uid types.UID) []string
}

// Wake wakes the parent and the children of a run when it is created (was nil), changed, or gone
// (now nil), if that is of interest to them. It is called when the cache has it.
func Wake(enqueue func(types.NamespacedName), index childIndex, was, now *v1alpha1.WorkflowRun) {
	run := now
	if run == nil {
		run = was
	}
	wake := func(name string) {
		enqueue(types.NamespacedName{Namespace: run.Namespace, Name: name})
	}
	if claim := run.ClaimsParent(); claim != nil && concernsParent(was, now) {
		wake(claim.Name)
	}
	if was == nil { // its children have events of their own
		return
	}
	if now == nil || others(was) != others(now) {
		for _, name := range index.ChildrenOf(run.UID) {
			wake(name)
		}
	}
	for _, name := range changedChildren(was, now) { // ended ones, too: they wait for that with their deletion
		wake(name)
	}
}

// concernsParent says whether an event of a child is of interest to its parent: it is new, has
// ended, or is gone.
func concernsParent(was, now *v1alpha1.WorkflowRun) bool {
	return was == nil || now == nil || lifecycle.Finished(was) != lifecycle.Finished(now)
}

// toAll is what all children of a run want to know of it.
type toAll struct {
	suspend  bool
	shutdown v1alpha1.ShutdownMode
	phase    v1alpha1.RunPhase
}

func others(run *v1alpha1.WorkflowRun) toAll {
	return toAll{suspend: run.Spec.Suspend, shutdown: run.Spec.Shutdown, phase: phaseOf(run)}
}

// changedChildren are the children whose steps changed: they got the child's uid, or ended.
func changedChildren(was, now *v1alpha1.WorkflowRun) []string {
	if now == nil || now.Status == nil {
		return nil
	}
	var names []string
	for i := range now.Status.Steps {
		s := &now.Status.Steps[i]
		if s.ChildRun == nil {
			continue
		}
		if was.Status != nil && i < len(was.Status.Steps) {
			if old := &was.Status.Steps[i]; old.Phase == s.Phase && old.ChildRun != nil && sameChild(old.ChildRun, s.ChildRun) {
				continue
			}
		}
		names = append(names, s.ChildRun.Name)
	}
	return names
}

// sameChild says whether a step names the same child as before. The rest of what it says of a child
// does not change.
func sameChild(was, now *v1alpha1.ChildRunStatus) bool {
	return was.Name == now.Name && was.UID == now.UID
}

func phaseOf(run *v1alpha1.WorkflowRun) v1alpha1.RunPhase {
	if run.Status == nil || run.Status.Phase == "" {
		return v1alpha1.RunPending
	}
	return run.Status.Phase
}
