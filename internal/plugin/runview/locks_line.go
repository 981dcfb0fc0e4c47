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

// of is where the operator has a run stand: a child run stands where the run at the top does. If
// that was not read, or another of its name which is younger, the child has priority 0 and its own
// age.
func (named standings) of(run *v1alpha1.WorkflowRun) standing {
	parent := statusOf(run).Parent
	if parent == nil {
		return standing{run.Spec.Priority, run.CreationTimestamp.Time}
	}
	own := standing{created: run.CreationTimestamp.Time}
	top := named[types.NamespacedName{Namespace: run.Namespace, Name: parent.Root}]
	if top == nil || top.CreationTimestamp.After(own.created) {
		return own
	}
	return standing{top.Spec.Priority, top.CreationTimestamp.Time}
}
