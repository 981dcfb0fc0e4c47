// SPDX-License-Identifier: Apache-2.0

package stepapproval

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
)

const (
	// AtOnce is how many decisions are looked at at the same time.
	AtOnce = 2
	// conflictPause is the wait after somebody else changed a decision, until the cache has that.
	conflictPause = time.Second
	// firstBackoff is the wait after the first error in a row; it doubles with each,
	// up to maxBackoff.
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 30 * time.Second
)

// Reconciler sets the owner of StepApprovals.
type Reconciler struct {
	// Client reads StepApprovals from the cache, and patches them.
	Client client.Client
	// Live reads runs from the API server.
	Live client.Reader
	// Turn gives a look at a decision a place, until it leaves; Wake is called for one that may not
	// have one now, when it may. Nil: each look has one.
	Turn func(approval types.NamespacedName) (leave func(), may bool)

	backoff passes.Backoff
	queue   atomic.Pointer[queue]
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Wake has a decision looked at.
func (r *Reconciler) Wake(approval types.NamespacedName) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: approval})
	}
}

// ownersChange leaves out what makes no difference: each look asks the API server for the run, and
// somebody may write labels all the time.
var ownersChange = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, now := e.ObjectOld, e.ObjectNew
		return was.GetUID() != now.GetUID() || !equality.Semantic.DeepEqual(was.GetOwnerReferences(), now.GetOwnerReferences())
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// SetupWithManager adds the controller to a manager. It runs on the leader; where replicas share
// the runs on all of them, and the first patch is the one that counts.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("stepapproval").
		For(&v1alpha1.StepApproval{}, builder.WithPredicates(ownersChange)).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.queue.Store(&q)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: AtOnce + 1, // one tells those that have to wait that they have
			NeedLeaderElection:      new(true),
			RateLimiter:             r.backoff.Limiter(firstBackoff, maxBackoff),
		}).
		Complete(passes.UntilStop(r))
	if err != nil {
		return fmt.Errorf("make step approval controller: %w", err)
	}
	return nil
}

// Reconcile looks at one StepApproval when it is its namespace's turn: another one may have
// thousands, about runs that are not there.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	leave, may := r.backoff.Enter(r.Turn, req)
	if !may {
		return reconcile.Result{}, nil // it is woken
	}
	defer leave()
	return r.look(ctx, req)
}

// look makes a StepApproval belong to its run.
func (r *Reconciler) look(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var a v1alpha1.StepApproval
	if err := r.Client.Get(ctx, req.NamespacedName, &a); err != nil {
		return reconcile.Result{}, wrap("read step approval", req, client.IgnoreNotFound(err))
	}
	if owned(&a) || !a.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if len(validation.NameIsDNSSubdomain(a.Spec.Run, false)) > 0 {
		return reconcile.Result{}, nil // the client takes it for a part of a path, which may lead elsewhere
	}
	run := &metav1.PartialObjectMetadata{}
	run.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRun"))
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.Run}, run); err != nil {
		return reconcile.Result{}, wrap("read the run of step approval", req, client.IgnoreNotFound(err))
	}
	if !a.Means(run) || !run.DeletionTimestamp.IsZero() { // its deletion may just have taken the owner away, to keep the decision
		return reconcile.Result{}, nil
	}
	changed := a.DeepCopy()
	changed.OwnerReferences = append(changed.OwnerReferences, v1alpha1.OwnerReference(run))
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(&a, client.MergeFromWithOptimisticLock{}), client.FieldOwner("syncopate"))
	if apierrors.IsConflict(err) { // the change that was in the way may be no event, of a label, say
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	return reconcile.Result{}, wrap("set the owner of step approval", req, client.IgnoreNotFound(err))
}

// owned says whether some run owns the decision: it decides no more than one.
func owned(a *v1alpha1.StepApproval) bool {
	return slices.ContainsFunc(a.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "WorkflowRun" && o.Name == a.Spec.Run && (a.Spec.RunUID == "" || string(o.UID) == a.Spec.RunUID)
	})
}

func wrap(what string, req reconcile.Request, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, req.NamespacedName, err)
}
