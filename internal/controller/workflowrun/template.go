// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/templates"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/revisions"
)

// resolver gives runs the steps of their Workflows; *templates.Templates does.
type resolver interface {
	Of(ctx context.Context, run *v1alpha1.WorkflowRun) (templates.Found, error)
	// Forget forgets a run that is gone, or that another process drives, and no other of its name.
	Forget(run types.NamespacedName, uid types.UID)
	WaitingFor(workflow types.NamespacedName) []types.NamespacedName
}

// observeTemplate gives the run of a pass the steps of its Workflow. From here on the pass has a
// run with steps; only asStored has it without.
func observeTemplate(ctx context.Context, p *pass) error {
	p.spec = p.run.Spec
	is, err := p.r.Templates.Of(ctx, p.run)
	if cause := cmp.Or(err, is.Refused); cause != nil {
		tellUnkept(p, cause)
	}
	if err != nil {
		return err
	}
	p.run, p.template, p.unkept, p.later = is.Run, is.Template, is.Refused, pacing.Earliest(p.later, is.RetryAt)
	return nil
}

// tellUnkept tells people that the revision which a run follows is gone, and is refused when it is
// made again: such a pass writes nothing but an end, so status cannot say it. It is told once until
// a write is taken.
func tellUnkept(p *pass, cause error) {
	pinned := p.run.Status != nil && p.run.Status.Workflow != nil
	if !pinned || !revisions.Refused(cause) || p.mem.refused == v1alpha1.ReasonRevisionNotKept {
		return
	}
	p.mem.refused = v1alpha1.ReasonRevisionNotKept
	p.r.Events.Eventf(p.run, nil, corev1.EventTypeWarning, v1alpha1.ReasonRevisionNotKept, "Advance",
		"The revision that the run follows cannot be had, so the run stands still: %s", bounds.Printable(cause.Error(), mostRefusal))
}

// asStored is a run of the pass as the API server stores it: the same one, unless it
// follows a Workflow.
func asStored(p *pass, run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	if p.spec.WorkflowRef == nil {
		return run
	}
	stored := *run
	stored.Spec = p.spec
	return &stored
}

// findJobs finds the jobs of a deleted run that followed a Workflow. Where its revision is not
// there package gc finds them: nobody waits to be sure of that.
func (r *Reconciler) findJobs(ctx context.Context, g *results.Tombstone) error {
	if g.Follows == nil {
		return nil
	}
	is, err := r.Templates.Of(ctx, g.Follows)
	if err != nil && !errors.Is(err, revisions.ErrGone) {
		return err
	}
	if err == nil {
		g.Jobs = append(g.Jobs, lifecycle.InFlightJobs(is.Run)...)
	}
	r.Templates.Forget(client.ObjectKeyFromObject(g.Follows), g.UID)
	g.Follows = nil // they are found
	return nil
}

// workflowWatch wakes the runs that wait for a Workflow when it is created or changed.
func (r *Reconciler) workflowWatch() handler.EventHandler {
	wake := func(o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, run := range r.Templates.WaitingFor(client.ObjectKeyFromObject(o)) {
			q.Add(reconcile.Request{NamespacedName: run})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(e.ObjectNew, q)
		},
	}
}
