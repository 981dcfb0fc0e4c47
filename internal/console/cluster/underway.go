// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

const (
	underWayPage  = 100
	underWayPages = 100
	maxObjects    = 500
	// notEnded selects the runs that have not ended, where the API server keeps them.
	notEnded = "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Cancelled,status.phase!=TimedOut"
)

// outline is what is kept of a run under way. Inputs and outputs are skipped as they are read, and
// of steps all but their locks.
type outline struct {
	Metadata struct {
		Namespace string      `json:"namespace"`
		Name      string      `json:"name"`
		UID       types.UID   `json:"uid"`
		Created   metav1.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		WorkloadClass string `json:"workloadClass"`
		Priority      int32  `json:"priority"`
	} `json:"spec"`
	Status *struct {
		Phase       v1alpha1.RunPhase         `json:"phase"`
		Tenant      string                    `json:"tenant"`
		Parent      *v1alpha1.ParentStatus    `json:"parent"`
		Admission   *v1alpha1.AdmissionStatus `json:"admission"`
		Policy      *v1alpha1.PolicyReference `json:"policy"`
		CompletedAt *metav1.Time              `json:"completedAt"`
		Locks       []v1alpha1.LockHold       `json:"locks"`
		Steps       []stepOutline             `json:"steps"`
	} `json:"status"`
}

// stepOutline is what is kept of a step that holds locks across runs, or waits for one.
type stepOutline struct {
	Name     string              `json:"name"`
	Phase    v1alpha1.StepPhase  `json:"phase"`
	Locks    []v1alpha1.LockHold `json:"locks"`
	LockWait *v1alpha1.LocksWait `json:"lockWait"`
	ForEach  *struct {
		Locks []v1alpha1.ItemLocks `json:"locks"`
	} `json:"forEach"`
}

// UnderWay are the runs that have not ended, with no more of their steps than locks: 10,000 at
// most. more says whether there are others.
func (v *View) UnderWay(ctx context.Context, namespace string) (runs []v1alpha1.WorkflowRun, more bool, err error) {
	next := ""
	for range underWayPages {
		answer := v.rows.Get().NamespaceIfScoped(namespace, namespace != "").Resource("workflowruns").Param("fieldSelector", notEnded).
			Param("limit", strconv.Itoa(underWayPage)).Param("continue", next).Do(ctx)
		if err := answer.Error(); err != nil && !unreadable(err) {
			return nil, false, fmt.Errorf("list runs: %w", err)
		}
		raw, err := answer.Raw()
		if err != nil {
			return nil, false, fmt.Errorf("list runs: %w", err)
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []outline       `json:"items"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, false, fmt.Errorf("list runs: %w", err)
		}
		for i := range page.Items {
			runs = append(runs, page.Items[i].run())
		}
		if next = page.Metadata.Continue; next == "" {
			return runs, false, nil
		}
	}
	return runs, true, nil
}

// unreadable says whether an error is only that the client does not decode such objects by itself.
func unreadable(err error) bool {
	_, status := err.(apierrors.APIStatus)
	return !status
}

func (o *outline) run() v1alpha1.WorkflowRun {
	run := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID, CreationTimestamp: o.Metadata.Created,
	}}
	run.Spec.WorkloadClass, run.Spec.Priority = o.Spec.WorkloadClass, o.Spec.Priority
	if s := o.Status; s != nil {
		run.Status = &v1alpha1.WorkflowRunStatus{
			Phase: s.Phase, Tenant: s.Tenant, Parent: s.Parent, Admission: s.Admission, Policy: s.Policy, CompletedAt: s.CompletedAt, Locks: s.Locks,
		}
		for i := range s.Steps {
			if step := s.Steps[i].step(); step != nil {
				run.Status.Steps = append(run.Status.Steps, *step)
			}
		}
	}
	return run
}

// step is nil if it has nothing to do with locks.
func (o *stepOutline) step() *v1alpha1.StepStatus {
	step := &v1alpha1.StepStatus{Name: o.Name, Phase: o.Phase, Locks: o.Locks, LockWait: o.LockWait}
	if o.ForEach != nil && len(o.ForEach.Locks) > 0 {
		step.ForEach = &v1alpha1.ForEachStatus{Locks: o.ForEach.Locks}
	}
	if len(step.Locks) == 0 && step.LockWait == nil && step.ForEach == nil {
		return nil
	}
	return step
}

// Policies are all LockPolicies; nil if they may not be seen.
func (v *View) Policies(ctx context.Context) ([]v1alpha1.LockPolicy, error) {
	return reads.Policies(ctx, v.Client)
}

// Semaphores are those that there are, 500 at most; nil if they may not be seen.
func (v *View) Semaphores(ctx context.Context) ([]v1alpha1.Semaphore, error) {
	list := &v1alpha1.SemaphoreList{}
	switch err := v.Client.List(ctx, list, client.Limit(maxObjects)); {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list semaphores: %w", err)
	}
	return append([]v1alpha1.Semaphore{}, list.Items...), nil
}

// Schedules are those of a namespace, or of all, 500 at most.
func (v *View) Schedules(ctx context.Context, namespace string) ([]v1alpha1.Schedule, error) {
	list := &v1alpha1.ScheduleList{}
	if err := v.Client.List(ctx, list, client.InNamespace(namespace), client.Limit(maxObjects)); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	return list.Items, nil
}

// Owners are who owns which partition, and the Leases of the replicas.
func (v *View) Owners(ctx context.Context, operator string) (facts.Owners, error) {
	claims, err := reads.Claims(ctx, v.Client, operator)
	if err != nil {
		return facts.Owners{}, err
	}
	list := &coordinationv1.LeaseList{}
	err = v.Client.List(ctx, list, client.InNamespace(operator), client.MatchingLabels{ownership.LeaseLabel: ownership.MemberLease}, client.Limit(maxObjects))
	if err != nil {
		return facts.Owners{}, fmt.Errorf("list the Leases of replicas: %w", err)
	}
	return facts.Owners{Claims: claims, Leases: list.Items}, nil
}
