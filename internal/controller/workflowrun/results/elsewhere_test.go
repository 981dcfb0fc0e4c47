// SPDX-License-Identifier: Apache-2.0

package results

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: Adopt that hands out the runs of other partitions, or one run twice, makes this fail.
func TestAdopt_HandsOverRunsThatWereDeletedElsewhere(t *testing.T) {
	x := NewIndex()
	mine, other := runOf("ns", "mine"), runOf("ns", "other")
	for i := 0; protocol.Partition(string(other.UID)) == protocol.Partition(string(mine.UID)); i++ {
		other.UID = types.UID(fmt.Sprint("u-other-", i))
	}
	of := map[int]bool{protocol.Partition(string(mine.UID)): true}
	x.See(mine)
	x.See(other)
	x.Remove(mine, false)
	x.Remove(other, false)
	key := types.NamespacedName{Namespace: "ns", Name: "mine"}
	if gone := x.TakeDeleted(key); len(gone) != 0 {
		t.Errorf("%v is cleaned up by who does not drive it", gone)
	}
	if keys := x.Adopt(of); len(keys) != 1 || keys[0] != key {
		t.Errorf("%v, want %v", keys, key)
	}
	if gone := x.TakeDeleted(key); len(gone) != 1 || gone[0].UID != mine.UID {
		t.Errorf("tombstones %v", gone)
	}
	if keys := x.Adopt(of); len(keys) != 0 {
		t.Errorf("%v again", keys)
	}
}

// mutation: entomb that keeps the whole run, or trackOf without the attempts or the groups of
// items, makes this fail.
func TestATombstoneHasOfARunOnlyWhatItsJobsAreFoundBy(t *testing.T) {
	output := &runtime.RawExtension{Raw: []byte(`"` + strings.Repeat("x", 32<<10) + `"`)}
	run := runOf("ns", "mine")
	run.Annotations = map[string]string{"large": strings.Repeat("x", 256<<10)}
	run.Spec = v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: "report"}, Inputs: output}
	run.Status = &v1alpha1.WorkflowRunStatus{
		Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: "r1"}, Outputs: output,
		Steps: []v1alpha1.StepStatus{
			{Name: "done", Phase: v1alpha1.StepSucceeded, Attempt: 1, Output: output},
			{Name: "one", Phase: v1alpha1.StepRunning, Attempt: 2, Error: &v1alpha1.StepError{Message: strings.Repeat("x", 1000)}},
			{Name: "child", Phase: v1alpha1.StepRunning, Attempt: 1, ChildRun: &v1alpha1.ChildRunStatus{Name: "child"}},
			{Name: "items", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{Total: 9, Begun: 9, Outputs: output, Groups: []v1alpha1.ItemGroup{
				{Items: "3-4,7", Phase: v1alpha1.StepDispatched, Attempt: 3}, {Items: "8", Phase: v1alpha1.StepBackingOff, Attempt: 1},
			}}},
		},
	}
	x := NewIndex()
	x.See(run)
	x.Remove(run, false)
	x.Adopt(map[int]bool{protocol.Partition(string(run.UID)): true})
	left := x.TakeDeleted(types.NamespacedName{Namespace: "ns", Name: "mine"})[0]
	kept, err := json.Marshal(left.Follows)
	if err != nil || len(kept) > 1<<10 {
		t.Errorf("%d bytes of the run are kept (%v)", len(kept), err)
	}
	if is := left.Follows; is.Namespace != "ns" || is.Name != "mine" || is.Spec.WorkflowRef.Name != "report" || is.Status.Workflow.Revision != "r1" {
		t.Errorf("its Workflow is not found: %s", kept)
	}
	withdrawn := func(of *v1alpha1.WorkflowRun) []lifecycle.Withdrawal {
		effective := *of
		for _, name := range []string{"done", "one", "child", "items"} {
			effective.Spec.Steps = append(effective.Spec.Steps, v1alpha1.Step{Name: name, Job: &v1alpha1.Job{Topic: "topic-" + name}})
		}
		return lifecycle.InFlightJobs(&effective)
	}
	want := withdrawn(run)
	if diff := cmp.Diff(want, withdrawn(left.Follows)); diff != "" || len(want) != 4 {
		t.Errorf("%d jobs are withdrawn (-want +got):\n%s", len(want), diff)
	}
}

// mutation: elsewhere without its bound, or a bound that does not count jobs, makes this fail.
func TestElsewhereIsBounded(t *testing.T) {
	var e elsewhere
	many := make([]lifecycle.Withdrawal, maxElsewhere/2)
	for i := range 5 {
		e.add(grave{left: Tombstone{UID: types.UID(fmt.Sprint(i)), Jobs: many}})
	}
	if len(e.graves) != 1 || e.graves[0].left.UID != "4" || e.weight != 1+len(many) {
		t.Errorf("%d are kept, with a weight of %d", len(e.graves), e.weight)
	}
	e.add(grave{left: Tombstone{UID: "large", Jobs: make([]lifecycle.Withdrawal, 2*maxElsewhere)}})
	if len(e.graves) != 0 || e.weight != 0 {
		t.Errorf("%d are kept, with a weight of %d", len(e.graves), e.weight)
	}
}
