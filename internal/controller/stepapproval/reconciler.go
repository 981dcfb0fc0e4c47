// SPDX-License-Identifier: Apache-2.0

package stepapproval

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
)

const (
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
}

// SetupWithManager adds the controller to a manager. It runs on the leader; where replicas share
// the runs on all of them, and the first patch is the one that counts.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("stepapproval").
		For(&v1alpha1.StepApproval{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			NeedLeaderElection:      new(true),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, maxBackoff),
		}).
		Complete(passes.UntilStop(r))
	if err != nil {
		return fmt.Errorf("make step approval controller: %w", err)
	}
	return nil
}

// Reconcile looks at one StepApproval and makes it belong to its run.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
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
	if apierrors.IsConflict(err) { // the change that was in the way comes as an event
		return reconcile.Result{}, nil
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
