// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// What an outline takes in memory, in bytes, about.
const (
	runWeight  = 3 << 10
	stepWeight = 1 << 10
	lockWeight = 256
)

// outlineOf is what is kept of a run under way. Inputs and outputs are left out, so that they are
// not held in memory, and of steps all that is not about locks.
func outlineOf(run *v1alpha1.WorkflowRun, detail Detail) v1alpha1.WorkflowRun {
	o := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
		Namespace: run.Namespace, Name: run.Name, UID: run.UID, CreationTimestamp: run.CreationTimestamp,
	}}
	st := run.Status
	o.Spec.WorkloadClass, o.Spec.Priority, o.Spec.Suspend, o.Spec.Shutdown = run.Spec.WorkloadClass, run.Spec.Priority, run.Spec.Suspend, run.Spec.Shutdown
	o.Status = &v1alpha1.WorkflowRunStatus{
		Phase: st.Phase, Tenant: st.Tenant, Parent: st.Parent, Admission: st.Admission, Policy: st.Policy, CompletedAt: st.CompletedAt,
		Fence: st.Fence, Lock: st.Lock, Workflow: st.Workflow,
	}
	if detail == Bare {
		return o
	}
	o.Spec.WorkflowRef, o.Spec.Locks, o.Spec.Steps, o.Spec.Finally = run.Spec.WorkflowRef, run.Spec.Locks, asksOf(run.Spec.Steps), asksOf(run.Spec.Finally)
	o.Status.Locks = st.Locks
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		o.Status.Conditions = []metav1.Condition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
	}
	for i := range st.Steps {
		if step := locksOf(&st.Steps[i]); step != nil {
			o.Status.Steps = append(o.Status.Steps, *step)
		}
	}
	return o
}

// asksOf are the steps that ask for locks, as far as they do.
func asksOf(all []v1alpha1.Step) (steps []v1alpha1.Step) {
	for i := range all {
		step := v1alpha1.Step{Name: all[i].Name, Locks: all[i].Locks}
		if f := all[i].ForEach; f != nil && len(f.Locks) > 0 {
			step.ForEach = &v1alpha1.ForEach{Locks: f.Locks}
		}
		if len(step.Locks) > 0 || step.ForEach != nil {
			steps = append(steps, step)
		}
	}
	return steps
}

// locksOf is what is kept of a step that holds locks across runs, or waits: who holds a lock may
// wait for an approval. nil: it does neither.
func locksOf(s *v1alpha1.StepStatus) *v1alpha1.StepStatus {
	step := &v1alpha1.StepStatus{Name: s.Name, Phase: s.Phase, Locks: s.Locks, LockWait: s.LockWait}
	if s.ForEach != nil && len(s.ForEach.Locks) > 0 {
		step.ForEach = &v1alpha1.ForEachStatus{Locks: s.ForEach.Locks}
		for i := range s.ForEach.Groups {
			g := &s.ForEach.Groups[i]
			step.ForEach.Groups = append(step.ForEach.Groups, v1alpha1.ItemGroup{Items: g.Items, Phase: g.Phase})
		}
	}
	if len(step.Locks) == 0 && step.LockWait == nil && step.ForEach == nil && s.Phase != v1alpha1.StepWaiting {
		return nil
	}
	return step
}

// weightOfWhole is what a run takes in memory as a whole, in bytes, about.
func weightOfWhole(run *v1alpha1.WorkflowRun) int {
	text, err := json.Marshal(run)
	if err != nil {
		return maxWhole + 1 // it was read as JSON
	}
	return WeightOf(run) + 2*len(text)
}

// WeightOf is what the outline of a run takes in memory, in bytes, about.
func WeightOf(run *v1alpha1.WorkflowRun) int {
	steps, locks := 0, len(run.Spec.Locks)
	for _, all := range [][]v1alpha1.Step{run.Spec.Steps, run.Spec.Finally} {
		for i := range all {
			steps, locks = steps+1, locks+len(all[i].Locks)
			if all[i].ForEach != nil {
				locks += len(all[i].ForEach.Locks)
			}
		}
	}
	if st := run.Status; st != nil {
		locks += len(st.Locks)
		for i := range st.Steps {
			steps, locks = steps+1, locks+len(st.Steps[i].Locks)
			locks += weightOfItems(st.Steps[i].ForEach)
		}
	}
	return runWeight + steps*stepWeight + locks*lockWeight
}

// weightOfItems is how many locks what is kept of items counts as.
func weightOfItems(f *v1alpha1.ForEachStatus) int {
	if f == nil {
		return 0
	}
	n := len(f.Groups)
	for i := range f.Groups {
		n += len(f.Groups[i].Items) / lockWeight
	}
	for i := range f.Locks {
		n += 1 + len(f.Locks[i].Locks)
	}
	return n
}
