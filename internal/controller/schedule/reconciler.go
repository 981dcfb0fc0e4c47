// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

const (
	// longestWait is the time between two looks at the clock, which may be set.
	longestWait = time.Minute
	// conflictPause is the wait after somebody else changed a schedule, until the cache has that.
	conflictPause = 100 * time.Millisecond

	fieldOwner = client.FieldOwner("syncopate")
)

// drives says which schedules this process drives; *driven.Partitions does.
type drives interface {
	Enter(ctx context.Context, uid types.UID) (while context.Context, leave func() (late bool), ok bool)
	// Early ends with ctx, or once the schedule is to be handed over.
	Early(ctx context.Context, uid types.UID) (early context.Context, cancel func())
}

// Reconciler starts the runs of schedules.
type Reconciler struct {
	// Client reads schedules and namespaces from the cache, and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Runs lists the runs that a schedule owns. They are not changed.
	Runs func(ctx context.Context, s *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error)
	// Below says whether a run below a run that ended is under way, at its clean-up: it would be
	// deleted with it, and a run of the next slot would be beside it.
	Below   func(ctx context.Context, run *v1alpha1.WorkflowRun) (bool, error)
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	Driven  drives
	Metrics *Metrics
	// RequireLists is --require-allow-lists.
	RequireLists bool
	// Turn gives a pass over a schedule a place, until it leaves; Wake is called for one that may
	// not have one now, when it may. Nil: each pass has one.
	Turn func(schedule types.NamespacedName) (leave func(), may bool)
	// Aside has passes over long templates.
	Aside *passes.Aside

	backoff  passes.Backoff
	waker    waker
	mu       sync.Mutex
	memories map[types.NamespacedName]*memory
	lastAsk  time.Time // the latest time for which a question about a held schedule is planned
}

// Reconcile looks at one schedule when it is its namespace's turn: thousands of one namespace may
// be due in the same minute.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	leave, may := r.backoff.Enter(r.Turn, req)
	if !may {
		return reconcile.Result{}, nil // it is woken
	}
	defer leave()
	return r.look(ctx, req)
}

// look makes a pass over a schedule, if it is there and this process drives it.
func (r *Reconciler) look(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s := &v1alpha1.Schedule{}
	if err := r.Client.Get(ctx, req.NamespacedName, s); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			r.waker.drop(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read schedule %s: %w", req.NamespacedName, err)
	}
	if !s.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	r.waker.idle(req.NamespacedName, s.UID)
	while, leave, ok := r.Driven.Enter(ctx, s.UID)
	if !ok {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	defer leave()
	r.waker.drop(req.NamespacedName)
	result, err := r.pass(while, s, r.memory(req.NamespacedName, s.UID))
	switch {
	case errors.Is(err, passes.ErrLater):
		r.backoff.InLine(req)
		return reconcile.Result{RequeueAfter: passes.Later}, nil
	case err != nil:
		return r.failed(ctx, while, req.NamespacedName, s.UID, err)
	}
	return result, nil
}

// failed says what comes after a pass that failed. It is no error that a hand-over cut it off: the
// next owner makes another, and so does this process if that is itself, maybe by now.
func (r *Reconciler) failed(ctx, while context.Context, key types.NamespacedName, uid types.UID, err error) (reconcile.Result, error) {
	r.waker.idle(key, uid)
	driven := r.drives(ctx, uid)
	if driven {
		r.waker.drop(key)
		if while.Err() == nil {
			return reconcile.Result{}, err
		}
	}
	log.FromContext(ctx).V(1).Info("A pass ended as its schedule is handed over", "cause", err.Error())
	r.forget(key)
	if driven {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	return reconcile.Result{}, nil
}

// drives says whether this process drives a schedule, now.
func (r *Reconciler) drives(ctx context.Context, uid types.UID) bool {
	_, leave, ok := r.Driven.Enter(ctx, uid)
	if ok {
		leave()
	}
	return ok
}

// pass decides, writes, acts.
func (r *Reconciler) pass(ctx context.Context, s *v1alpha1.Schedule, mem *memory) (reconcile.Result, error) {
	in, err := r.observe(ctx, s, mem)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := schedule.Decide(in)
	stored, err := r.persist(ctx, s, &d)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	clear(mem.failed)
	mem.decided(d.Status.Starting)
	if d.Status.Held != "" {
		mem.failing = time.Time{} // nothing is created, so nothing fails
	}
	retry, err := r.act(ctx, stored, in, &d, mem)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: r.wait(&d, sooner(retry, mem.lookAgain(r.Clock.Now())))}, nil
}

// wait is when to look again; 0: when something happens.
func (r *Reconciler) wait(d *schedule.Decision, retry time.Duration) time.Duration {
	wait := longestWait
	if d.Status.Held != "" && len(d.Status.Starting) == 0 {
		wait = 0
	}
	if !d.Wake.IsZero() {
		wait = min(longestWait, max(d.Wake.Sub(r.Clock.Now()), time.Millisecond))
	}
	if d.Again {
		wait = time.Millisecond
	}
	if retry > 0 && (wait == 0 || retry < wait) {
		wait = retry
	}
	return wait
}

// persist writes status, if it is another, and says what is stored then. Where nothing is written
// and runs are to be created or cancelled, what the cache has may be old.
func (r *Reconciler) persist(ctx context.Context, s *v1alpha1.Schedule, d *schedule.Decision) (*v1alpha1.Schedule, error) {
	changed := s.DeepCopy()
	changed.Status = d.Status
	if !equality.Semantic.DeepEqual(s.Status, d.Status) {
		return changed, r.writeStatus(ctx, changed)
	}
	if len(d.Create) == 0 && len(d.Cancel) == 0 {
		return s, nil
	}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), changed); err != nil {
		return nil, fmt.Errorf("read schedule %s: %w", s.Name, err)
	}
	if changed.ResourceVersion != s.ResourceVersion {
		return nil, apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("schedules").GroupResource(), s.Name, errOld)
	}
	return s, nil
}

// writeStatus replaces the status of a schedule, if its resourceVersion is that of the stored one,
// and gives it its new one. As of runs, the status alone is sent: the cache has not all of a spec,
// and an API server that cannot make sense of what it is sent forgets who wrote which field.
func (r *Reconciler) writeStatus(ctx context.Context, s *v1alpha1.Schedule) error {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.Status)
	if err != nil {
		return fmt.Errorf("encode status of schedule %s: %w", s.Name, err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Schedule"))
	o.SetNamespace(s.Namespace)
	o.SetName(s.Name)
	o.SetUID(s.UID)
	o.SetResourceVersion(s.ResourceVersion)
	if err := r.Client.Status().Update(ctx, o, fieldOwner); err != nil {
		return fmt.Errorf("write status of schedule %s: %w", s.Name, err)
	}
	s.ResourceVersion = o.GetResourceVersion()
	return nil
}

// memory is what is known of a schedule; nothing of another one that had its name.
func (r *Reconciler) memory(key types.NamespacedName, uid types.UID) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories == nil {
		r.memories = map[types.NamespacedName]*memory{}
	}
	if r.memories[key] == nil || r.memories[key].of != uid {
		r.memories[key] = newMemory(uid)
	}
	return r.memories[key]
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
}
