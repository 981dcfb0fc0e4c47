// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// outline is what is kept of a run under way. Inputs and outputs are skipped as they are read, and
// of steps all but their locks, and the approvals that wait: who holds a lock may wait for one.
type outline struct {
	Metadata struct {
		Namespace string      `json:"namespace"`
		Name      string      `json:"name"`
		UID       types.UID   `json:"uid"`
		Created   metav1.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		WorkloadClass string                 `json:"workloadClass"`
		Priority      int32                  `json:"priority"`
		Suspend       bool                   `json:"suspend"`
		Shutdown      v1alpha1.ShutdownMode  `json:"shutdown"`
		Locks         []v1alpha1.LockRequest `json:"locks"`
		Steps         []askOutline           `json:"steps"`
		Finally       []askOutline           `json:"finally"`
	} `json:"spec"`
	Status *struct {
		Phase       v1alpha1.RunPhase         `json:"phase"`
		Tenant      string                    `json:"tenant"`
		Parent      *v1alpha1.ParentStatus    `json:"parent"`
		Admission   *v1alpha1.AdmissionStatus `json:"admission"`
		Policy      *v1alpha1.PolicyReference `json:"policy"`
		CompletedAt *metav1.Time              `json:"completedAt"`
		Conditions  []metav1.Condition        `json:"conditions"`
		Locks       []v1alpha1.LockHold       `json:"locks"`
		Steps       []stepOutline             `json:"steps"`
	} `json:"status"`
}

// askOutline is what is kept of a step of spec that asks for locks.
type askOutline struct {
	Name    string                 `json:"name"`
	Locks   []v1alpha1.LockRequest `json:"locks"`
	ForEach *struct {
		Locks []v1alpha1.LockRequest `json:"locks"`
	} `json:"forEach"`
}

// stepOutline is what is kept of a step that holds locks across runs, or waits.
type stepOutline struct {
	Name     string              `json:"name"`
	Phase    v1alpha1.StepPhase  `json:"phase"`
	Locks    []v1alpha1.LockHold `json:"locks"`
	LockWait *v1alpha1.LocksWait `json:"lockWait"`
	ForEach  *struct {
		Locks  []v1alpha1.ItemLocks `json:"locks"`
		Groups []groupOutline       `json:"groups"`
	} `json:"forEach"`
}

// groupOutline is what is kept of a group of items.
type groupOutline struct {
	Items string             `json:"items"`
	Phase v1alpha1.StepPhase `json:"phase"`
}

func (o *outline) run() v1alpha1.WorkflowRun {
	run := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID, CreationTimestamp: o.Metadata.Created,
	}}
	run.Spec.WorkloadClass, run.Spec.Priority, run.Spec.Suspend, run.Spec.Shutdown = o.Spec.WorkloadClass, o.Spec.Priority, o.Spec.Suspend, o.Spec.Shutdown
	run.Spec.Locks, run.Spec.Steps, run.Spec.Finally = o.Spec.Locks, asksOf(o.Spec.Steps), asksOf(o.Spec.Finally)
	s := o.Status
	if s == nil {
		return run
	}
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: s.Phase, Tenant: s.Tenant, Parent: s.Parent, Admission: s.Admission, Policy: s.Policy, CompletedAt: s.CompletedAt, Locks: s.Locks,
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		run.Status.Conditions = []metav1.Condition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
	}
	for i := range s.Steps {
		if step := s.Steps[i].step(); step != nil {
			run.Status.Steps = append(run.Status.Steps, *step)
		}
	}
	return run
}

// asksOf are the steps that ask for locks.
func asksOf(all []askOutline) (steps []v1alpha1.Step) {
	for _, o := range all {
		step := v1alpha1.Step{Name: o.Name, Locks: o.Locks}
		if o.ForEach != nil && len(o.ForEach.Locks) > 0 {
			step.ForEach = &v1alpha1.ForEach{Locks: o.ForEach.Locks}
		}
		if len(step.Locks) > 0 || step.ForEach != nil {
			steps = append(steps, step)
		}
	}
	return steps
}

// step is nil if it has nothing to do with locks.
func (o *stepOutline) step() *v1alpha1.StepStatus {
	step := &v1alpha1.StepStatus{Name: o.Name, Phase: o.Phase, Locks: o.Locks, LockWait: o.LockWait}
	if o.ForEach != nil && len(o.ForEach.Locks) > 0 {
		step.ForEach = &v1alpha1.ForEachStatus{Locks: o.ForEach.Locks}
		for _, g := range o.ForEach.Groups {
			step.ForEach.Groups = append(step.ForEach.Groups, v1alpha1.ItemGroup{Items: g.Items, Phase: g.Phase})
		}
	}
	if len(step.Locks) == 0 && step.LockWait == nil && step.ForEach == nil && o.Phase != v1alpha1.StepWaiting {
		return nil
	}
	return step
}
