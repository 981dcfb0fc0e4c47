// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// standing says which of two runs is first in the line of a lock.
type standing struct {
	priority int32
	created  time.Time
}

// standingOf is where the operator has a run stand: a child run stands where the run at the top
// does. If that is not among those that were read, or another of its name which is younger, the
// child has priority 0 and its own age.
func (t *table) standingOf(run *v1alpha1.WorkflowRun) standing {
	parent := statusOf(run).Parent
	if parent == nil {
		return standing{run.Spec.Priority, run.CreationTimestamp.Time}
	}
	own := standing{created: run.CreationTimestamp.Time}
	top := t.named()[types.NamespacedName{Namespace: run.Namespace, Name: parent.Root}]
	if top == nil || top.CreationTimestamp.After(own.created) {
		return own
	}
	return standing{top.Spec.Priority, top.CreationTimestamp.Time}
}

// named are the runs that were read, by name.
func (t *table) named() map[types.NamespacedName]*v1alpha1.WorkflowRun {
	if t.byName == nil {
		t.byName = map[types.NamespacedName]*v1alpha1.WorkflowRun{}
		for run := range t.runs() {
			t.byName[types.NamespacedName{Namespace: run.Namespace, Name: run.Name}] = run
		}
	}
	return t.byName
}

// inLine orders those who wait for a lock, as the operator does.
func (w *LockWaiter) inLine(other *LockWaiter) int {
	return cmp.Or(
		cmp.Compare(other.stands.priority, w.stands.priority), w.stands.created.Compare(other.stands.created), inLine(w.run, other.run),
		w.Since.Compare(other.Since), cmp.Compare(w.Step, other.Step), compareItems(w.Item, other.Item),
	)
}
