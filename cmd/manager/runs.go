package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/liveness"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// adapters are what the parts of the run controller share with others.
type adapters struct {
	*broker
	locks       *lockmgr.Manager
	ballots     *ballot.Box
	lockMetrics *lockmgr.Metrics
	quota       *store.Store
	// eventsWaiting is how many events wait to be written.
	eventsWaiting func() int
}

// addRuns makes the parts of the run controller, joins them, and adds them to a manager. All run on
// the leader only. The quota controller that it returns may be used on any replica.
//
//	bus --> results.Consumer --> results.Router --> Inbox, and wake the run
//	workqueue --> workflowrun.Reconciler --> slots, leases, outputs, dispatch, children, results, gc
func addRuns(ctx context.Context, mgr manager.Manager, o options, a adapters) (*quota.Controller, error) {
	clk, spread, registry := clock.RealClock{}, o.spread(), metrics.Registry
	statuses, err := workflowrun.NewStatusWriter(mgr.GetConfig(), mgr.GetScheme(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make the writer of status: %w", err)
	}
	waker, figures, places := &workflowrun.Waker{}, workflowrun.NewMetrics(registry), shares.NewMetrics(registry)
	index, inbox := results.NewIndex(), results.NewInbox(o.inboxLimit, o.inboxBytes)
	settler := results.NewSettler(inbox, a.resultMetrics)
	router := results.NewRouter(results.Options{
		Index: index, Inbox: inbox, Settler: settler, Live: mgr.GetAPIReader(), Clock: clk, Spread: spread, Refusals: figures.Refusals, Wake: waker.Wake,
	})
	locks := leases.New(leases.Options{
		Locks: a.locks, Clock: clk, Rand: rand.Float64, Spread: spread, NewID: uuid.NewString, Holder: o.holder,
		Metrics: a.lockMetrics, TakeOver: figures.TakeOver, Leading: waker.Leading, Wake: waker.Wake,
	})
	collector := &gc.Collector{Jobs: a.jobs, Outputs: a.payloads, Uploads: a.payloads, Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clk}
	workers := liveness.New(a.jobs.Workers, waker.Wake, liveness.Options{Clock: clk, Log: mgr.GetLogger().WithName("liveness")})
	limits := quota.New(quota.Options{
		Gate: a.quota, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Wake: waker.WakeNext, Clock: clk, NewID: uuid.NewString,
		Log: mgr.GetLogger().WithName("quota"), Metrics: quota.NewMetrics(registry),
	})
	asks := slots.NewAsks(limits, clk, places.Of("gate"), waker.WakeAnswered)
	turns := shares.NewTurns(o.maxConcurrent, places.Of("pass"), waker.Wake)
	r := &workflowrun.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Statuses: statuses, NATS: a.conn, Liveness: workers,
		Events: &workflowrun.BoundedEvents{EventRecorder: mgr.GetEventRecorder("syncopate"), Waiting: a.eventsWaiting, Dropped: figures.EventsDropped},
		Clock:  clk, Rand: rand.Float64, Waker: waker, Metrics: figures, Delays: a.resultMetrics, Holder: o.holder, RequireLists: o.requireLists,
		Ballots: a.ballots, RecoverPatience: workflowrun.OthersPatience, PolicyChanged: limits.PolicyChanged,
		Turns: turns, Desks: shares.NewDesks(shares.DesksOfProcess(), turns, clk, places.Of("desk")),
		Index: index, Leases: locks, Outputs: a.payloads, GC: collector,
		Batches: &results.Batches{
			Inbox: inbox, Settler: settler, Clock: clk, Spread: spread, Applied: figures.ResultLatency, PerWrite: figures.ResultsPerWrite,
		},
		Stream:   &results.Stream{Answers: a.reader, Clock: clk, Asked: figures.AnswersAsked},
		Dispatch: &dispatch.Dispatcher{Jobs: a.jobs, Clock: clk, Recoveries: figures.Recoveries, Latency: figures.DispatchLatency},
		Slots:    &slots.Slots{Quota: asks, Keys: limits, Asks: asks},
		Children: &children.Children{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clk, Owner: workflowrun.FieldOwner},
	}
	if o.maxWrites > 0 {
		r.Writes = shares.New(o.maxWrites, false, places.Of("write"))
	}
	err = errors.Join(registry.Register(results.NewPhaseCounts(index)), registry.Register(results.NewWaitingResults(router, a.results.Parked)),
		r.SetupWithManager(ctx, mgr, o.maxConcurrent))
	for _, part := range []manager.Runnable{
		limits, asks, router.Orphans(), locks.Cache, collector, untilEnd(workers.Run), untilEnd(a.conn.Watch),
		r.WatchNATS(a.conn.LossNoticed(), a.conn.OutageChanged()), results.NewConsumer(a.conn, a.results, router),
	} {
		err = errors.Join(err, mgr.Add(part))
	}
	return limits, err
}

// untilEnd is a part that runs until its context ends.
func untilEnd(run func(context.Context)) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		run(ctx)
		return nil
	})
}
