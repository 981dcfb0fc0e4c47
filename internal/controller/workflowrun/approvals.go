// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// Approvals are the decisions about approval steps as signals. The informer wakes the run about
// which somebody decided (watchApprovals), so there is nothing to watch for a single run.
type Approvals struct {
	Client client.Reader // the cache
	Live   client.Reader // the API server
}

// approvalsPage bounds the decisions that are read at a time from the API server.
const approvalsPage = 50 // objects of up to 1.5 MiB, though most have some hundred bytes

// Observe reads the decisions about a run.
func (a *Approvals) Observe(ctx context.Context, run *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error) {
	if !facts.AsksForApproval(run) {
		return nil, nil
	}
	var list v1alpha1.StepApprovalList
	about := client.MatchingFields{approvalRun: run.Name}
	if err := a.Client.List(ctx, &list, client.InNamespace(run.Namespace), about, client.UnsafeDisableDeepCopy); err != nil { // they are only read, in each pass
		return nil, fmt.Errorf("list step approvals: %w", err)
	}
	return facts.Approvals(run, list.Items), nil
}

// Ask reads the decisions about a run from the API server.
func (a *Approvals) Ask(ctx context.Context, run *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error) {
	if !facts.AsksForApproval(run) {
		return nil, nil
	}
	var all []v1alpha1.StepApproval
	for next := ""; ; {
		var page v1alpha1.StepApprovalList
		about := client.MatchingFields{approvalRun: run.Name}
		if err := a.Live.List(ctx, &page, client.InNamespace(run.Namespace), about, client.Limit(approvalsPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list step approvals live: %w", err)
		}
		all = facts.Counting(run, append(all, page.Items...))
		if next = page.Continue; next == "" {
			return facts.Approvals(run, all), nil
		}
	}
}

// Watch implements Signals.
func (*Approvals) Watch(*v1alpha1.WorkflowRun) {}

// Forget implements Signals.
func (*Approvals) Forget(types.NamespacedName) {}

// approvalRun is the field by which decisions are found, in the cache and at the API server.
const approvalRun = "spec.run"

// watchApprovals wakes the run about which somebody decided. Decisions do not change.
func watchApprovals(ctx context.Context, mgr ctrl.Manager, c controller.Controller) error {
	index := func(o client.Object) []string {
		if a, ok := o.(*v1alpha1.StepApproval); ok {
			return []string{a.Spec.Run}
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.StepApproval{}, approvalRun, index); err != nil {
		return fmt.Errorf("index step approvals: %w", err)
	}
	watch := handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if a, ok := e.Object.(*v1alpha1.StepApproval); ok {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Run}})
		}
	}}
	if err := c.Watch(source.Kind(mgr.GetCache(), client.Object(&v1alpha1.StepApproval{}), watch)); err != nil {
		return fmt.Errorf("watch step approvals: %w", err)
	}
	return nil
}
