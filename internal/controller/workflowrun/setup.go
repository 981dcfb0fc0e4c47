package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/liveness"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Options are what Setup needs beside the manager.
type Options struct {
	Locks         *lockmgr.Manager
	LockMetrics   *lockmgr.Metrics
	NATS          *bus.Conn
	Jobs          *jobs.Queue
	Reader        *busresults.Reader
	Results       *busresults.Consumer
	Payloads      *payloads.Store
	ResultMetrics *busresults.Metrics
	Clock         clock.WithTickerAndDelayedExecution
	Rand          func() float64 // uniform in [0,1); for waits for busy locks
	Spread        func() float64 // as Rand, for all other waits; always 0.5: they are exact
	NewID         func() string  // random lease ids for forced ends
	Holder        string         // name of this replica
	Registry      prometheus.Registerer
	Gate          *store.Store // nil: no limits and no idempotency keys
	RequireLists  bool         // namespaces without lists of allowed classes and topics permit none
	MaxConcurrent int          // runs worked on at the same time
	MaxWrites     int          // status writes at the same time, but for those that let a run in; 0: any number
	EventsWaiting func() int   // how many events wait to be written; nil: not bounded
	InboxLimit    int          // results that wait in memory, over all runs
	InboxBytes    int64        // of them in memory, over all runs
}

// maxBackoff bounds the wait after errors of the API server: a run must go on soon after it is back.
const maxBackoff = 5 * time.Second

// Setup adds the run controller, the consumer of results and their helpers to a manager. All run on the leader only. The keeper of
// the tenants' gates may be used on any replica; nil if there are none.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*quota.Controller, error) {
	statuses, err := newStatusWriter(mgr.GetConfig(), mgr.GetScheme(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), statuses: statuses,
		locks: o.Locks, nats: o.NATS, jobs: o.Jobs, reader: o.Reader, outputs: o.Payloads, requireLists: o.RequireLists,
		events: mgr.GetEventRecorder("syncopate"),
		clock:  o.Clock, rand: o.Rand, spread: o.Spread, newID: o.NewID, holder: o.Holder, recoverPatience: othersPatience,
		metrics: NewMetrics(o.Registry), locked: o.LockMetrics, resultMetrics: o.ResultMetrics,
		inbox: results.NewInbox(o.InboxLimit, o.InboxBytes), memories: newMemories(), lists: newLists(), index: results.NewIndex(),
		breaker: &breaker{clock: o.Clock}, keeper: newKeeper(),
	}
	if o.EventsWaiting != nil {
		r.events = &boundedEvents{r.events, o.EventsWaiting, r.metrics.eventsDropped}
	}
	places := shares.NewMetrics(o.Registry)
	if o.MaxWrites > 0 {
		r.writes = shares.New(o.MaxWrites, false, places.Of("write"))
	}
	r.turns = shares.NewTurns(o.MaxConcurrent, places.Of("pass"), r.wake)
	r.desks = shares.NewDesks(shares.DesksOfProcess(), r.turns, o.Clock, places.Of("desk"))
	workers := newCrew(o.Jobs, r.wake, liveness.Options{Clock: o.Clock, Log: mgr.GetLogger().WithName("crew")})
	r.crews = workers
	gates, err := r.setupQuota(mgr, o, places)
	if err != nil {
		return nil, err
	}
	r.settler = results.NewSettler(r.inbox, o.ResultMetrics)
	r.gc = &gc.Collector{Jobs: o.Jobs, Outputs: o.Payloads, Uploads: o.Payloads, Cache: r.client, Live: r.live, Clock: o.Clock}
	r.children = &children.Children{Client: r.client, Live: r.live, Clock: o.Clock, Owner: fieldOwner}
	router := results.NewRouter(results.Options{
		Index: r.index, Inbox: r.inbox, Settler: r.settler, Live: r.live, Clock: o.Clock, Spread: o.Spread, Refusals: r.metrics.refusals, Wake: r.wake,
	})
	if err := errors.Join(o.Registry.Register(results.NewPhaseCounts(r.index)), o.Registry.Register(results.NewWaitingResults(router, o.Results.Parked))); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if err := r.setupController(ctx, mgr, o.MaxConcurrent); err != nil {
		return nil, err
	}
	for _, runnable := range []manager.Runnable{router.Orphans(), r.keeper, r.gc, manager.RunnableFunc(func(ctx context.Context) error {
		workers.Run(ctx)
		return nil
	}), manager.RunnableFunc(func(ctx context.Context) error {
		r.watchNATS(ctx, o.NATS.LossNoticed(), o.NATS.OutageChanged())
		return nil
	}), manager.RunnableFunc(func(ctx context.Context) error {
		o.NATS.Watch(ctx)
		return nil
	}), results.NewConsumer(o.NATS, o.Results, router)} {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("add runnable: %w", err)
		}
	}
	return gates, nil
}

// setupQuota makes the quota controller; nil: every run is let in.
func (r *Reconciler) setupQuota(mgr ctrl.Manager, o Options, places *shares.Metrics) (*quota.Controller, error) {
	r.slots, r.policyChanged = &slots.Slots{}, func() {}
	if o.Gate == nil {
		return nil, nil //nolint:nilnil // see above
	}
	controller := quota.New(quota.Options{
		Gate: o.Gate, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Wake: r.wakeNext, Clock: o.Clock, NewID: o.NewID,
		Log: mgr.GetLogger().WithName("quota"), Metrics: quota.NewMetrics(o.Registry),
	})
	asks := slots.NewAsks(controller, o.Clock, places.Of("gate"), r.wakeAnswered)
	r.slots, r.policyChanged = &slots.Slots{Quota: asks, Keys: controller, Asks: asks}, controller.PolicyChanged
	if err := errors.Join(mgr.Add(controller), mgr.Add(asks)); err != nil {
		return nil, fmt.Errorf("add the quota controller: %w", err)
	}
	return controller, nil
}

// wakeAnswered has a pass made over a run whose quota answered.
func (r *Reconciler) wakeAnswered(key types.NamespacedName, admitted bool) {
	if admitted {
		r.wakeNext(key)
		return
	}
	r.wake(key)
}

func (r *Reconciler) setupController(ctx context.Context, mgr ctrl.Manager, maxConcurrent int) error {
	c, err := controller.New("workflowrun", mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: maxConcurrent + 1, // one says to runs that have to wait for their turn that they have
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, maxBackoff),
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
	if err := watchApprovals(ctx, mgr, c); err != nil {
		return err
	}
	capture := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		began := r.clock.Now()
		r.leading.Store(&began)
		r.queue.Store(&q)
		return nil
	})
	if err := c.Watch(capture); err != nil {
		return fmt.Errorf("get the queue of the run controller: %w", err)
	}
	return nil
}

// informer turns events of the cache into entries of the directory and wake-ups. Updates of status alone wake a run only when
// another process wrote them: it may have died before it acted on them.
func (r *Reconciler) informer() handler.EventHandler {
	wake := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object) {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if run, ok := e.Object.(*v1alpha1.WorkflowRun); ok {
				r.index.See(run)
				children.Wake(enqueue(q), r.index, nil, run)
			}
			wake(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			was, _ := e.ObjectOld.(*v1alpha1.WorkflowRun)
			if run, ok := e.ObjectNew.(*v1alpha1.WorkflowRun); ok && was != nil {
				r.changed(q, was, run)
			}
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || r.byAnother(e.ObjectNew) || r.saidBusy(e.ObjectNew) {
				wake(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if run, ok := e.Object.(*v1alpha1.WorkflowRun); ok {
				r.index.Remove(run)
				children.Wake(enqueue(q), r.index, run, nil)
			}
			wake(q, e.Object)
		},
	}
}

// enqueue has a pass made over a run.
func enqueue(q queue) func(types.NamespacedName) {
	return func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) }
}

// changed keeps the index, and wakes the relatives of a run.
func (r *Reconciler) changed(q workqueue.TypedRateLimitingInterface[reconcile.Request], was, now *v1alpha1.WorkflowRun) {
	if was.UID != now.UID { // the watch missed that it was deleted
		r.index.Remove(was)
		children.Wake(enqueue(q), r.index, was, nil)
		r.index.See(now)
		children.Wake(enqueue(q), r.index, nil, now)
		return
	}
	r.index.See(now)
	children.Wake(enqueue(q), r.index, was, now)
}

// policyWatch wakes the runs that keep their lock when a policy changed, so that they take it anew under the policy of now, and those
// that wait to be admitted. The others look at the policy when they take the lock.
func (r *Reconciler) policyWatch() handler.EventHandler {
	wake := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		r.policyChanged()
		for _, uid := range r.keeper.runs() {
			if key, ok := r.index.Find(uid); ok {
				q.Add(reconcile.Request{NamespacedName: key})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(q)
		},
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			wake(q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
				wake(q)
			}
		},
	}
}

// approvalRun is the field by which decisions are found.
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

// byAnother says whether another process wrote the status of a run.
func (r *Reconciler) byAnother(o client.Object) bool {
	run, ok := o.(*v1alpha1.WorkflowRun)
	return ok && run.Status != nil && run.Status.Lock != nil && run.Status.Lock.Holder != r.holder
}

// saidBusy says whether another process says that it waits in vain for a lock which this one keeps: that is to be taken back.
func (r *Reconciler) saidBusy(o client.Object) bool {
	run, ok := o.(*v1alpha1.WorkflowRun)
	return ok && lifecycle.SaysLockBusy(run) && r.keeper.has(run.UID)
}
