// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// standing says which of two runs is first in the line of a lock.
type standing struct {
	priority int32
	created  time.Time
}

// before is negative if the first one is first in line.
func (s standing) before(other standing) int {
	return cmp.Or(cmp.Compare(other.priority, s.priority), s.created.Compare(other.created))
}

// standings knows where runs stand in line.
type standings map[types.NamespacedName]*v1alpha1.WorkflowRun

// standingsOf knows it of child runs whose run at the top is among those.
func standingsOf(runs iter.Seq[*v1alpha1.WorkflowRun]) standings {
	named := standings{}
	for run := range runs {
		named[types.NamespacedName{Namespace: run.Namespace, Name: run.Name}] = run
	}
	return named
}

// topOf names the run at the top of a child run. below is false of a run that is no child.
func topOf(run *v1alpha1.WorkflowRun) (root types.NamespacedName, below bool) {
	parent := statusOf(run).Parent
	if parent == nil {
		return root, false
	}
	return types.NamespacedName{Namespace: run.Namespace, Name: parent.Root}, true
}

// Tops are runs at the top that are not under way, while child runs of theirs wait for locks at a
// clean-up.
type Tops struct {
	Ended  []v1alpha1.WorkflowRun        // their names, priorities and ages
	Unread map[types.NamespacedName]bool // those that may be there, and were not read
}

// TopsMissing are the runs at the top, of child runs that wait for locks, which are not among runs:
// they have ended, or are gone. Each is named once, in the order of those that wait.
func TopsMissing(runs []v1alpha1.WorkflowRun) (missing []types.NamespacedName) {
	known := map[types.NamespacedName]bool{}
	for i := range runs {
		known[types.NamespacedName{Namespace: runs[i].Namespace, Name: runs[i].Name}] = true
	}
	for i := range runs {
		root, below := topOf(&runs[i])
		if below && root.Name != "" && !known[root] && WaitsForLocks(&runs[i]) {
			known[root] = true
			missing = append(missing, root)
		}
	}
	return missing
}

// of is where the operator has a run stand: a child run stands where the run at the top does. If
// that was not read, or another of its name which is younger, the child has priority 0 and its own
// age.
func (named standings) of(run *v1alpha1.WorkflowRun) standing {
	root, below := topOf(run)
	if !below {
		return standing{run.Spec.Priority, run.CreationTimestamp.Time}
	}
	own := standing{created: run.CreationTimestamp.Time}
	top := named[root]
	if top == nil || top.CreationTimestamp.After(own.created) {
		return own
	}
	return standing{top.Spec.Priority, top.CreationTimestamp.Time}
}
