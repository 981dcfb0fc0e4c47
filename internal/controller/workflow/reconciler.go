// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

const (
	// AtOnce is how many Workflows are worked on at the same time.
	AtOnce = 4
	// firstBackoff is the wait after the first error in a row; it doubles with each,
	// up to maxBackoff.
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// retiringPause is the wait for a revision that is about to be deleted.
	retiringPause = time.Second
	// firstLooks is how long after the start the first of the Workflows that are there already is
	// looked at. A run that needs one wakes it sooner.
	firstLooks = 2 * time.Second
	// firstLookEvery is the time between two of those: each takes three requests, with all of its
	// content, and each replica makes them.
	firstLookEvery = 100 * time.Millisecond
)

// ensurer keeps revisions; *revisions.Store does.
type ensurer interface {
	Ensure(ctx context.Context, w *v1alpha1.Workflow) (*template.Content, error)
}

// Reconciler keeps the current revision and the status of Workflows.
type Reconciler struct {
	// Client writes status.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Revisions keeps revisions.
	Revisions ensurer
	// Clock tells the time.
	Clock clock.PassiveClock
	// Owner names who writes.
	Owner client.FieldOwner
	// Turn gives a pass over a Workflow a place, until it leaves; Wake is called for one that may
	// not have one now, when it may. Nil: each pass has one.
	Turn func(workflow types.NamespacedName) (leave func(), may bool)
	// Aside has passes over long Workflows.
	Aside *passes.Aside

	backoff passes.Backoff
	queue   atomic.Pointer[queue]
	long    sync.Map // by name: Workflows that wait for a desk
	pace    pace
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Wake has a pass made over a Workflow.
func (r *Reconciler) Wake(workflow types.NamespacedName) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(reconcile.Request{NamespacedName: workflow})
	}
}

// SetupWithManager adds the controller to a manager. It watches the metadata of Workflows: their
// content is read when it changes.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("workflow").
		WatchesMetadata(&v1alpha1.Workflow{}, &events{}, builder.WithPredicates(passes.OfSpecs())).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.queue.Store(&q)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: AtOnce + 1, // one tells those that have to wait that they have
			RateLimiter:             r.backoff.Limiter(firstBackoff, maxBackoff),
		}).
		Complete(passes.UntilStop(r))
	if err != nil {
		return fmt.Errorf("make workflow controller: %w", err)
	}
	return nil
}

// events has passes made over Workflows when they change, and one after the other over those that
// are there at the start.
type events struct {
	handler.EnqueueRequestForObject
	there atomic.Int64 // how many were
}

// Create is called for each Workflow that is there at the start, and for new ones.
func (e *events) Create(ctx context.Context, c event.CreateEvent, q queue) {
	if !c.IsInInitialList {
		e.EnqueueRequestForObject.Create(ctx, c, q)
		return
	}
	wait := firstLooks + time.Duration(e.there.Add(1)-1)*firstLookEvery
	q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c.Object)}, wait)
}

// Reconcile looks at one Workflow when it is its namespace's turn: somebody may edit his all the
// time.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	leave, may := r.backoff.Enter(r.Turn, req)
	if !may {
		return reconcile.Result{}, nil // it is woken
	}
	defer leave()
	if _, long := r.long.LoadAndDelete(req.NamespacedName); long && !r.Aside.Free(req.Namespace) {
		return r.later(req), nil // not even read: there may be thousands
	}
	return r.look(ctx, req)
}

// later has a pass over a Workflow come again that found no desk.
func (r *Reconciler) later(req reconcile.Request) reconcile.Result {
	r.long.Store(req.NamespacedName, true)
	r.backoff.InLine(req)
	return reconcile.Result{RequeueAfter: passes.Later}
}

// look keeps the current revision of a Workflow, and writes its status if that is another. One that
// is edited all the time has some edits kept, and others passed over.
func (r *Reconciler) look(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w := &v1alpha1.Workflow{}
	if err := r.Live.Get(ctx, req.NamespacedName, w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !w.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	now := r.Clock.Now()
	if wait := r.pace.wait(w, now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	content, err := r.Revisions.Ensure(ctx, w)
	if err != nil {
		return r.unkept(ctx, w, fmt.Errorf("keep the revision of Workflow %s: %w", req.NamespacedName, err))
	}
	r.pace.kept(w, now)
	if w.Status != nil && slices.Contains(w.Status.Retiring, content.Revision) {
		return reconcile.Result{RequeueAfter: retiringPause}, nil // it is about to be deleted, and is made anew then
	}
	problems, err := r.problemsOf(ctx, w, content)
	if errors.Is(err, passes.ErrLater) || errors.Is(err, expr.ErrUnread) {
		return r.later(req), nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("validate Workflow %s: %w", req.NamespacedName, err)
	}
	return r.write(ctx, w, r.statusOf(w, content, problems))
}

// unkept says in status that a revision is refused, and has it tried again. The status is not that
// of this generation: its revision is not there.
func (r *Reconciler) unkept(ctx context.Context, w *v1alpha1.Workflow, cause error) (reconcile.Result, error) {
	if !revisions.Refused(cause) {
		return reconcile.Result{}, cause
	}
	next := &v1alpha1.WorkflowStatus{}
	if w.Status != nil {
		next = w.Status.DeepCopy()
	}
	meta.SetStatusCondition(&next.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRevisionNotKept,
		Message: bounds.Cut(cause.Error(), bounds.MaxToolChars), ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
	if result, err := r.write(ctx, w, next); err != nil || result.RequeueAfter > 0 {
		return result, err
	}
	return reconcile.Result{}, cause
}

// write writes the status of a Workflow, if it is another.
func (r *Reconciler) write(ctx context.Context, w *v1alpha1.Workflow, status *v1alpha1.WorkflowStatus) (reconcile.Result, error) {
	if equality.Semantic.DeepEqual(w.Status, status) {
		return reconcile.Result{}, nil
	}
	w.Status = status
	err := r.Client.Status().Update(ctx, w, r.Owner)
	if apierrors.IsConflict(err) { // somebody else wrote it, another replica, say
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("write status of Workflow %s/%s: %w", w.Namespace, w.Name, err)
	}
	return reconcile.Result{}, nil
}

// statusOf is the status of a Workflow whose current revision is kept.
func (r *Reconciler) statusOf(w *v1alpha1.Workflow, c *template.Content, problems []string) *v1alpha1.WorkflowStatus {
	next := &v1alpha1.WorkflowStatus{}
	if w.Status != nil {
		next = w.Status.DeepCopy()
	}
	next.ObservedGeneration, next.Revision = w.Generation, c.Revision
	next.Steps = int32(len(w.Spec.Template.Steps) + len(w.Spec.Template.Finally))
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "Runs can follow it",
		ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	stalled := ready
	stalled.Type, stalled.Status = v1alpha1.ConditionStalled, metav1.ConditionFalse
	if len(problems) > 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalidTemplate
		ready.Message = bounds.Cut(strings.Join(problems, "; "), bounds.MaxProblemsChars)
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, ready.Reason, bounds.Cut(ready.Message, bounds.MaxToolChars)
	}
	meta.SetStatusCondition(&next.Conditions, ready)
	meta.SetStatusCondition(&next.Conditions, stalled)
	return next
}

// problemsOf is what is wrong with a version of a Workflow, each with its field. What depends on
// the inputs of a run is found when that is first seen.
func (r *Reconciler) problemsOf(ctx context.Context, w *v1alpha1.Workflow, c *template.Content) ([]string, error) {
	problems := c.Problems()
	run := c.Effective(&v1alpha1.WorkflowRun{}, []byte("{}"))
	plan := dag.Of(run)
	plan.Inputs = c.InputNames()
	found, err := dag.ValidateAt(run, &plan, dag.Top, func() (rest func() bool, leave func(), err error) { return r.Aside.Work(ctx, w.Namespace) })
	if err != nil {
		return nil, err
	}
	for _, problem := range found {
		problems = append(problems, "spec.template."+strings.TrimPrefix(problem, "spec."))
	}
	return problems, nil
}
