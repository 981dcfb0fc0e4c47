// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

const (
	underWayPage  = 100
	underWayPages = 100
	maxWeight     = 64 << 20 // of what is kept of them
	maxObjects    = 500
	// semaphorePages are read for a run that waits: it may wait for any, and one that is not read
	// is not one that is not there.
	semaphorePages = 10
)

// UnderWay shows the runs that have not ended, as outlines: 10,000 at most, and fewer where they
// have very many locks. more says whether there are others. They are many, so that few pages have
// them at a time: show makes of them what is small.
func (v *View) UnderWay(ctx context.Context, namespace string, show func(runs []v1alpha1.WorkflowRun, more bool)) error {
	leave, err := v.shared.turns.enter(ctx, v.User)
	if err != nil {
		return err
	}
	defer leave()
	runs, more, err := v.underWay(ctx, namespace)
	if err == nil {
		show(runs, more)
	}
	return err
}

// underWay reads them. The caller has a turn.
func (v *View) underWay(ctx context.Context, namespace string) (runs []v1alpha1.WorkflowRun, more bool, err error) {
	next, left := "", maxWeight
	for range underWayPages {
		next, err = v.outlines(ctx, namespace, next, func(run v1alpha1.WorkflowRun) bool {
			runs = append(runs, run)
			left -= reads.WeightOf(&run)
			return left > 0
		})
		switch {
		case errors.Is(err, errFilled):
			return runs, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("list runs: %w", err)
		case next == "":
			return runs, false, nil
		}
	}
	return runs, true, nil
}

// outlines reads a page of runs, and says where the next one begins. keep says whether more are
// wanted.
func (v *View) outlines(ctx context.Context, namespace, from string, keep func(v1alpha1.WorkflowRun) bool) (next string, err error) {
	of := v.rows.Get().NamespaceIfScoped(namespace, namespace != "").Resource("workflowruns").Param("fieldSelector", v1alpha1.FieldsNotEnded).
		Param("limit", strconv.Itoa(underWayPage)).Param("continue", from)
	return stream(ctx, of, func(o *outline) bool { return keep(o.run()) })
}

// Policies are all LockPolicies; nil if they may not be seen.
func (v *View) Policies(ctx context.Context) ([]v1alpha1.LockPolicy, error) {
	return reads.Policies(ctx, v.Client)
}

// Semaphores are those that there are, 500 at most; nil if they may not be seen. more says whether
// there are others.
func (v *View) Semaphores(ctx context.Context) (list []v1alpha1.Semaphore, more bool, err error) {
	return v.semaphores(ctx, 1)
}

// semaphores reads so many pages of them.
func (v *View) semaphores(ctx context.Context, pages int) (all []v1alpha1.Semaphore, more bool, err error) {
	all, next := []v1alpha1.Semaphore{}, ""
	for range pages {
		list := &v1alpha1.SemaphoreList{}
		switch err := v.Client.List(ctx, list, client.Limit(maxObjects), client.Continue(next)); {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return nil, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("list semaphores: %w", err)
		}
		all = append(all, list.Items...)
		if next = list.Continue; next == "" {
			return all, false, nil
		}
	}
	return all, true, nil
}

// Schedules are those of a namespace, or of all, 500 at most, without the runs that they begin.
// more says whether there are others.
func (v *View) Schedules(ctx context.Context, namespace string) (all []v1alpha1.Schedule, more bool, err error) {
	of := v.rows.Get().NamespaceIfScoped(namespace, namespace != "").Resource("schedules").Param("limit", strconv.Itoa(maxObjects))
	next, err := stream(ctx, of, func(o *scheduleOutline) bool { all = append(all, o.schedule()); return true })
	if err != nil {
		return nil, false, fmt.Errorf("list schedules: %w", err)
	}
	return all, next != "", nil
}

// Owners are who owns which partition, and the Leases of the replicas. Where no ConfigMap says who
// owns what there are no Claims: the operator has a leader from the start, or is elsewhere.
func (v *View) Owners(ctx context.Context, operator string) (facts.Owners, error) {
	claims, err := reads.Claims(ctx, v.Client, operator)
	switch {
	case apierrors.IsNotFound(err):
		return facts.Owners{Leader: reads.Leader(ctx, v.Client, operator)}, nil
	case err != nil:
		return facts.Owners{}, err
	}
	list := &coordinationv1.LeaseList{}
	err = v.Client.List(ctx, list, client.InNamespace(operator), client.MatchingLabels{ownership.LeaseLabel: ownership.MemberLease}, client.Limit(maxObjects))
	if err != nil {
		return facts.Owners{}, fmt.Errorf("list the Leases of replicas: %w", err)
	}
	return facts.Owners{Claims: claims, Leases: list.Items, Leader: reads.Leader(ctx, v.Client, operator)}, nil
}
