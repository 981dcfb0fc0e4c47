// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/policynames"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

const (
	// refreshEvery is the least time between two looks at runs and metrics, and the most between
	// tries after errors.
	refreshEvery = 30 * time.Second
	// electedPause is the time between two looks at whether this replica writes status.
	electedPause = time.Second
	// conflictPause is the wait after somebody else changed a policy while its status was written.
	conflictPause = time.Second
	// firstBackoff is the wait after the first error in a row; it doubles with each.
	firstBackoff = 50 * time.Millisecond
)

// all is the one request of this controller: conflicts are between policies, so each change looks
// at all of them.
var all = reconcile.Request{NamespacedName: client.ObjectKey{Name: "all"}}

// Reconciler writes the status of all policies. It serves one request at a time.
type Reconciler struct {
	// Client reads policies and runs from the cache, and writes the status of policies.
	Client client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics are this process's own, those of internal/lockmgr among them.
	Metrics prometheus.Gatherer
	// Names are those of policies that are in labels of metrics; nil: all are.
	Names *policynames.Names
	// Elected says whether this replica writes the status of policies; nil: it does.
	Elected func() bool

	// Live reads from the API server.
	Live client.Reader
	// Events are about rollouts; nil: none are written.
	Events events.EventRecorder
	// Ballots are what this process counts of rollouts.
	Ballots *ballot.Box
	// Process names this life of this process: what it counts is stored under it.
	Process string
	// Namespace is where revisions are kept; empty: they are not.
	Namespace string

	// unkeptSince is since when the status of a policy waits for its revisions.
	unkeptSince map[string]time.Time
	// lost are the revisions that are named by statuses, and were not there when this replica first
	// looked: this namespace is not the one that they were kept in. nil: it did not look.
	lost map[string]bool

	last     figures
	trials   trials // as of this pass
	deleted  deletes
	reportAt time.Time // when this replica may report again, while another writes status
	rollouts rolloutMetrics
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	toAll := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{all}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("lockpolicy").
		Watches(&v1alpha1.LockPolicy{}, toAll, builder.WithPredicates(edits())).
		Watches(&v1alpha1.WorkflowRun{}, handler.Funcs{
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				r.deleted.add(e, r.Clock)
			},
		}).
		WithOptions(controller.Options{
			NeedLeaderElection:      new(false), // standbys may have votes, of starts that their webhook was asked about
			MaxConcurrentReconciles: 1,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, refreshEvery),
		}).
		Complete(passes.UntilStop(r))
	if err != nil {
		return fmt.Errorf("make lock policy controller: %w", err)
	}
	return nil
}

// edits leaves out the updates that are of status only. Of annotations one is a user's command.
func edits() predicate.Predicate {
	return predicate.Or(passes.OfSpecs(), predicate.Predicate(predicate.AnnotationChangedPredicate{}))
}

// Reconcile looks at all policies and writes the status of those whose status is out of date.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list v1alpha1.LockPolicyList
	if err := r.Client.List(ctx, &list); err != nil {
		return reconcile.Result{}, fmt.Errorf("list lock policies: %w", err)
	}
	if len(list.Items) == 0 {
		return r.withoutPolicies(), nil
	}
	now := r.Clock.Now()
	r.keepNames(list.Items, now)
	r.Ballots.Close(now)
	if r.Elected != nil && !r.Elected() {
		r.last, r.unkeptSince, r.lost, r.trials = figures{}, nil, nil, trials{} // they would be old when it does
		r.rollouts.only(nil)
		return reconcile.Result{RequeueAfter: electedPause}, r.reportOnly(ctx, list.Items, now)
	}
	r.rollouts.only(list.Items)
	var errs []error
	if r.last.due(now) {
		errs = append(errs, r.refresh(ctx, now))
	}
	errs = append(errs, r.lookAtTrials(ctx, list.Items, now), r.findLost(ctx, list.Items))
	wait := r.last.next(now)
	next := newStatuses(list.Items, r.last, now)
	for i := range list.Items {
		p := &list.Items[i]
		status := next.of(p, r.Names.Shared(p.Name))
		events := r.rollOut(p, status, now)
		status.Effective = effective(p, status, next.owners)
		err := r.keepAndWrite(ctx, p, status, events)
		if apierrors.IsConflict(err) {
			wait = min(wait, conflictPause)
			continue
		}
		if err == nil {
			r.rollouts.show(p.Name, status.Rollout)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// withoutPolicies is a pass over none. It comes again only for series that are to be dropped.
func (r *Reconciler) withoutPolicies() reconcile.Result {
	r.rollouts.only(nil)
	r.last, r.unkeptSince, r.trials = figures{}, nil, trials{} // of runs that nobody governs; the next policy's event begins anew
	if r.keepNames(nil, r.Clock.Now()) {
		return reconcile.Result{RequeueAfter: refreshEvery}
	}
	return reconcile.Result{}
}

// keepNames drops the series of deleted policies, each replica its own. It says whether there are
// some for later.
func (r *Reconciler) keepNames(policies []v1alpha1.LockPolicy, now time.Time) (later bool) {
	names := map[string]bool{}
	for i := range policies {
		names[policies[i].Name] = true
	}
	return r.Names.Keep(func(name string) bool { return names[name] }, now)
}

// reportOnly adds what this replica counted to the rollouts under way. Another one decides on them.
func (r *Reconciler) reportOnly(ctx context.Context, policies []v1alpha1.LockPolicy, now time.Time) error {
	if now.Before(r.reportAt) {
		return nil
	}
	r.reportAt = now.Add(refreshEvery)
	var errs []error
	for i := range policies {
		p := &policies[i]
		if p.Status == nil || !stateOf(p.Status.Rollout).Active() {
			continue
		}
		status := p.Status.DeepCopy()
		status.Rollout.Replicas = r.reported(p.Name, p.Status.Rollout)
		err := r.write(ctx, p, status, nil)
		if apierrors.IsConflict(err) {
			r.reportAt, err = now.Add(conflictPause), nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keepAndWrite stores a status, and before it the revisions that it names.
func (r *Reconciler) keepAndWrite(ctx context.Context, p *v1alpha1.LockPolicy, status *v1alpha1.LockPolicyStatus, events []rollout.Event) error {
	refusal, err := r.keepRevisions(ctx, p, status)
	if err != nil {
		return err
	}
	return r.write(ctx, p, status, append(events, sayUnkept(p, status, refusal, r.Clock.Now())...))
}

// write stores a status unless it is the one that is there, and then announces what is new in it.
func (r *Reconciler) write(ctx context.Context, p *v1alpha1.LockPolicy, status *v1alpha1.LockPolicyStatus, events []rollout.Event) error {
	if equality.Semantic.DeepEqual(p.Status, status) {
		return nil
	}
	changed := p.DeepCopy()
	changed.Status = status
	if err := r.Client.Status().Update(ctx, changed, client.FieldOwner("syncopate")); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of lock policy %s: %w", p.Name, err)
	}
	r.announce(p, events)
	return nil
}
