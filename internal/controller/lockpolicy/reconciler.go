package lockpolicy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// all is the one request of this controller: conflicts are between policies, so each change looks at all of them.
var all = reconcile.Request{NamespacedName: client.ObjectKey{Name: "all"}}

// Reconciler writes the status of all policies.
type Reconciler struct {
	Client client.Client
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	toAll := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{all}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("lockpolicy").
		Watches(&v1alpha1.LockPolicy{}, toAll, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("make lock policy controller: %w", err)
	}
	return nil
}

// Reconcile looks at all policies and writes the status of those whose status is out of date.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list v1alpha1.LockPolicyList
	if err := r.Client.List(ctx, &list); err != nil {
		return reconcile.Result{}, fmt.Errorf("list lock policies: %w", err)
	}
	conflicts := policy.Conflicts(list.Items)
	for i := range list.Items {
		if err := r.write(ctx, &list.Items[i], conflicts); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

func (r *Reconciler) write(ctx context.Context, p *v1alpha1.LockPolicy, conflicts map[string]policy.Conflict) error {
	next := p.DeepCopy()
	if next.Status == nil {
		next.Status = &v1alpha1.LockPolicyStatus{}
	}
	next.Status.ObservedGeneration = p.Generation
	meta.SetStatusCondition(&next.Status.Conditions, ready(p, conflicts))
	if equality.Semantic.DeepEqual(p.Status, next.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, next, client.FieldOwner("syncopate")); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of lock policy %s: %w", p.Name, err)
	}
	return nil
}

func ready(p *v1alpha1.LockPolicy, conflicts map[string]policy.Conflict) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: "In force for all its classes", ObservedGeneration: p.Generation,
	}
	if conflict, ok := conflicts[p.Name]; ok {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonClassConflict
		c.Message = fmt.Sprintf("Class %q belongs to the older policy %q; take it out of one of them", conflict.Class, conflict.Policy)
	}
	return c
}
