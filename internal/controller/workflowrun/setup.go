// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

const (
	// firstBackoff is the wait after the first error in a row; it doubles with each,
	// up to maxBackoff.
	firstBackoff = 50 * time.Millisecond
	// maxBackoff bounds the wait after errors of the API server: a run must go on soon after
	// it is back.
	maxBackoff = 5 * time.Second
)

// SetupWithManager adds the controller to a manager. It makes no pass over runs that this process
// does not drive.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, maxConcurrent int) error {
	c, err := controller.New("workflowrun", mgr, controller.Options{
		Reconciler:              passes.UntilStop(r),
		MaxConcurrentReconciles: maxConcurrent + shares.Aside + 1, // one says to runs that have to wait for their turn that they have
		RateLimiter:             r.backoff.Limiter(firstBackoff, maxBackoff),
	})
	if err != nil {
		return fmt.Errorf("make run controller: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), client.Object(&v1alpha1.WorkflowRun{}), r.informer())); err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), client.Object(&v1alpha1.LockPolicy{}), r.policyWatch())); err != nil {
		return fmt.Errorf("watch lock policies: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), client.Object(&v1alpha1.Semaphore{}), r.semaphoreWatch())); err != nil {
		return fmt.Errorf("watch semaphores: %w", err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), client.Object(WorkflowKind()), r.workflowWatch())); err != nil {
		return fmt.Errorf("watch workflows: %w", err)
	}
	if err := watchApprovals(ctx, mgr, c); err != nil {
		return err
	}
	capture := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.Waker.start(q)
		return nil
	})
	if err := c.Watch(capture); err != nil {
		return fmt.Errorf("get the queue of the run controller: %w", err)
	}
	return nil
}

// WorkflowKind has Workflows watched by their metadata: their content is read when a run needs it.
func WorkflowKind() *metav1.PartialObjectMetadata {
	kind := &metav1.PartialObjectMetadata{}
	kind.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Workflow"))
	return kind
}

// informer turns events of the cache into entries of the index, and into wake-ups of the runs that
// this process drives. Updates of status alone wake a run only when another process wrote them: it
// may have died before it acted on them.
func (r *Reconciler) informer() handler.EventHandler {
	wake := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object) {
		if !r.Driven.Drives(o.GetUID()) {
			return
		}
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}})
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if run, ok := e.Object.(*v1alpha1.WorkflowRun); ok {
				r.created(ctx, q, run)
			}
			wake(q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			was, _ := e.ObjectOld.(*v1alpha1.WorkflowRun)
			if run, ok := e.ObjectNew.(*v1alpha1.WorkflowRun); ok && was != nil {
				r.changed(ctx, q, was, run)
			}
			if edited(e.ObjectOld, e.ObjectNew) || r.byAnother(e.ObjectNew) || r.saidBusy(e.ObjectNew) {
				wake(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if run, ok := e.Object.(*v1alpha1.WorkflowRun); ok {
				r.Index.Remove(run, r.Driven.Drives(run.UID))
				children.Wake(enqueue(q), r.Index, run, nil)
			}
			wake(q, e.Object)
		},
	}
}

// enqueue has a pass made over a run.
func enqueue(q queue) func(types.NamespacedName) {
	return func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) }
}

// created enters a run into the index, and wakes its relatives.
func (r *Reconciler) created(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], run *v1alpha1.WorkflowRun) {
	r.Index.See(run)
	r.Known(ctx, run.UID)
	children.Wake(enqueue(q), r.Index, nil, run)
}

// changed keeps the index, and wakes the relatives of a run.
func (r *Reconciler) changed(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], was, now *v1alpha1.WorkflowRun) {
	if was.UID != now.UID { // the watch missed that it was deleted
		r.Index.Remove(was, r.Driven.Drives(was.UID))
		children.Wake(enqueue(q), r.Index, was, nil)
		r.created(ctx, q, now)
		return
	}
	r.Index.See(now)
	children.Wake(enqueue(q), r.Index, was, now)
}

// policyWatch wakes the runs that keep their lock when a policy changed, so that they take it anew
// under the policy of now, and those that wait to be admitted. The others look at the policy when
// they take the lock. One that was deleted is noted for those that wait.
func (r *Reconciler) policyWatch() handler.EventHandler {
	wake := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		r.PolicyChanged()
		for _, uid := range r.Leases.Cache.Runs() {
			if key, ok := r.Index.Find(uid); ok {
				q.Add(reconcile.Request{NamespacedName: key})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if p, ok := e.Object.(*v1alpha1.LockPolicy); ok {
				r.policies.Drop(p, r.Clock.Now())
			}
			wake(q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if passes.OtherSpec(e.ObjectOld, e.ObjectNew) || rolloutChanged(e.ObjectOld, e.ObjectNew) {
				wake(q)
			}
		},
	}
}

// semaphoreWatch has those woken that wait for a semaphore which changed.
func (r *Reconciler) semaphoreWatch() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.SemaphoreChanged(e.Object.GetName())
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.SemaphoreChanged(e.Object.GetName())
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if passes.OtherSpec(e.ObjectOld, e.ObjectNew) {
				r.SemaphoreChanged(e.ObjectNew.GetName())
			}
		},
	}
}

// byAnother says whether another process wrote the status of a run.
func (r *Reconciler) byAnother(o client.Object) bool {
	run, ok := o.(*v1alpha1.WorkflowRun)
	return ok && run.Status != nil && run.Status.Lock != nil && run.Status.Lock.Holder != r.Holder
}

// saidBusy says whether another process says that it waits in vain for a lock which this one keeps:
// that is to be taken back.
func (r *Reconciler) saidBusy(o client.Object) bool {
	run, ok := o.(*v1alpha1.WorkflowRun)
	return ok && lifecycle.SaysLockBusy(run) && r.Leases.Cache.Of(run.UID) != nil
}
