// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/schedule"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// AtOnce is how many schedules are worked on at the same time.
	AtOnce = 16
	// firstBackoff is the wait after the first error in a row; it doubles with each,
	// up to maxBackoff.
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
	// byOwner is the index of runs by the UID of their schedule.
	byOwner = "schedule"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager adds the controller to a manager. It makes no pass over schedules that this
// process does not drive.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.WorkflowRun{}, byOwner, ownerOf); err != nil {
		return fmt.Errorf("index runs by schedule: %w", err)
	}
	r.Runs = func(ctx context.Context, s *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) {
		var list v1alpha1.WorkflowRunList
		err := r.Client.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingFields{byOwner: string(s.UID)}, client.UnsafeDisableDeepCopy)
		return list.Items, err
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("schedule").
		Watches(&v1alpha1.Schedule{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(edits())).
		Watches(&v1alpha1.WorkflowRun{}, runEvents()).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.waker.start(q)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: AtOnce + 1, // one tells those that have to wait that they have
			RateLimiter:             r.backoff.Limiter(firstBackoff, maxBackoff),
		}).
		Complete(passes.UntilStop(r))
	if err != nil {
		return fmt.Errorf("make schedule controller: %w", err)
	}
	return nil
}

// edits leaves out the updates of schedules that change nothing that a pass reads: whoever may add
// a label may do so all the time.
func edits() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, _ := e.ObjectOld.(*v1alpha1.Schedule)
		now, _ := e.ObjectNew.(*v1alpha1.Schedule)
		return was == nil || now == nil || passes.OtherSpec(was, now) || !equality.Semantic.DeepEqual(was.Status, now.Status) ||
			was.Annotations[v1alpha1.AnnotationCreatedBy] != now.Annotations[v1alpha1.AnnotationCreatedBy] ||
			(schedule.Fits(was) == nil) != (schedule.Fits(now) == nil) // where it does not, the cache has no annotation
	}}
}

func ownerOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "Schedule" && owner.APIVersion == v1alpha1.GroupVersion.String() {
		return []string{string(owner.UID)}
	}
	return nil
}

// runEvents wakes the schedule of a run that ended or went.
func runEvents() handler.EventHandler {
	wake := func(q queue, o client.Object) {
		if owner := metav1.GetControllerOf(o); owner != nil && ownerOf(o) != nil {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}})
		}
	}
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { wake(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			was, _ := e.ObjectOld.(*v1alpha1.WorkflowRun)
			now, _ := e.ObjectNew.(*v1alpha1.WorkflowRun)
			if was != nil && now != nil && status.Finished(was) != status.Finished(now) {
				wake(q, now)
			}
		},
		GenericFunc: func(context.Context, event.GenericEvent, queue) {},
	}
}

// waker has passes made over the schedules of partitions that this process gains.
type waker struct {
	mu      sync.Mutex
	queue   queue
	waiting map[types.NamespacedName]types.UID // schedules of other processes
}

func (w *waker) start(q queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

// Wake has a pass made over a schedule.
func (r *Reconciler) Wake(schedule types.NamespacedName) {
	r.waker.mu.Lock()
	defer r.waker.mu.Unlock()
	if r.waker.queue != nil {
		r.waker.queue.Add(reconcile.Request{NamespacedName: schedule})
	}
}

// idle notes a schedule before it is asked whether this process drives it.
func (w *waker) idle(key types.NamespacedName, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[types.NamespacedName]types.UID{}
	}
	w.waiting[key] = uid
}

// drop drops a schedule that this process drives, or that is gone.
func (w *waker) drop(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, key)
}

// Gained has passes made over the schedules of partitions that this process drives now.
func (r *Reconciler) Gained(partitions map[int]bool) {
	w := &r.waker
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, uid := range w.waiting {
		if w.queue != nil && partitions[protocol.Partition(string(uid))] {
			w.queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
}
