// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/internal/audit/stores"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/clockset"
	"github.com/syncopate-dev/syncopate/internal/controller/audit"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/schedule"
	"github.com/syncopate-dev/syncopate/internal/controller/workflow"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch/backlog"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/gc"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/runwatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/templates"
	"github.com/syncopate-dev/syncopate/internal/liveness"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policynames"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	sharedlocks "github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
	"github.com/syncopate-dev/syncopate/internal/wakes"
)

// adapters are what the parts of the run controller share with others.
type adapters struct {
	*broker
	redis       redis.UniversalClient
	locks       *lockmgr.Manager
	ballots     *ballot.Box
	lockMetrics *lockmgr.Metrics
	names       *policynames.Names // of policies, in labels of metrics
	quota       *store.Store
	agreed      agreement
	// config reaches the API server.
	config *rest.Config
	// installation names the cluster, and process this process among all.
	installation, process string
	writes                *runwatch.Writes
	revisions             *revisions.Store
	templates             *templates.Templates
	index                 *results.Index
	figures               *workflowrun.Metrics
	events                events.EventRecorder
	*sharing
}

// sharing is what namespaces share of this process.
type sharing struct {
	waker  *workflowrun.Waker
	places *shares.Metrics
	turns  *shares.Turns
	desks  *shares.Desks
}

func newSharing(o options) *sharing {
	s := &sharing{waker: &workflowrun.Waker{}, places: shares.NewMetrics(metrics.Registry)}
	s.turns = shares.NewTurns(o.maxConcurrent, s.places.Of("pass"), s.waker.Wake).WithAside(shares.Aside, s.places.Of("aside"))
	s.desks = shares.NewDesks(shares.RoomOfProcess(), s.turns, clock.RealClock{}, s.places.Of("desk"))
	return s
}

// aside has passes of a controller that wait for desks, so many at most.
func (s *sharing) aside(most int) *passes.Aside {
	return &passes.Aside{Most: most, Clock: clock.RealClock{}, Desk: s.desks.Work}
}

// inTurn gives passes of a controller so many places; wake is told whose turn it is.
func (s *sharing) inTurn(places int, kind string, wake func(types.NamespacedName)) func(types.NamespacedName) (leave func(), may bool) {
	turns := shares.NewTurns(places, s.places.Of(kind), wake)
	return func(key types.NamespacedName) (leave func(), may bool) {
		turn, may := turns.Enter(key)
		return func() { turns.Release(turn) }, may
	}
}

// addRuns makes the parts of the run controller, joins them, and adds them to a manager. They work
// for the partitions that this replica owns. The quota controller that it returns may be used
// on any replica.
//
//	ownership --> workflowrun.Handover --> driven, results.Consumer, wake the runs
//	bus --> results.Consumer --> results.Router --> Inbox, and wake the run
//	workqueue --> workflowrun.Reconciler --> slots, leases, outputs, dispatch, children, results, gc
func addRuns(ctx context.Context, mgr manager.Manager, o options, a adapters) (*quota.Controller, owner, error) {
	clk, spread, registry := clock.RealClock{}, o.spread(), metrics.Registry
	statuses, err := workflowrun.NewStatusWriter(mgr.GetConfig(), mgr.GetScheme(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("make the writer of status: %w", err)
	}
	statuses.Writes = a.writes
	handover := &workflowrun.Handover{}
	owns, err := newOwner(mgr, o, a, handover)
	if err != nil {
		return nil, nil, err
	}
	drives := driven.New(clk, owns)
	waker, index, figures, places := a.waker, a.index, a.figures, a.places
	router, batches := newRouter(mgr, o, a, waker)
	locks := leases.New(leases.Options{
		Locks: a.locks, Clock: clk, Rand: rand.Float64, Spread: spread, NewID: uuid.NewString, Holder: o.holder, Gone: owns.ProcessGone,
		Metrics: a.lockMetrics, TakeOver: figures.TakeOver, DrivenSince: drives.Since, Wake: waker.Wake,
	})
	collector := &gc.Collector{Jobs: a.jobs, Outputs: a.payloads, Uploads: a.payloads, Strays: a.payloads, Cache: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clk}
	workers := liveness.New(a.jobs.Workers, waker.Wake, livenessOptions(o, clk, mgr.GetLogger())).
		Among(func(run types.NamespacedName) string { return run.Namespace })
	word := wakes.New(a.redis, waker.WakeNext, clk, mgr.GetLogger().WithName("wakes"))
	limits := quota.New(quota.Options{
		Gate: a.quota, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Wake: wakeAnywhere(index, drives, word, waker), Clock: clk, NewID: uuid.NewString,
		Log: mgr.GetLogger().WithName("quota"), Metrics: quota.NewMetrics(registry), Ballots: a.ballots,
	})
	shared := newLocks(mgr, a, wakeAnywhere(index, drives, word, waker))
	asks := slots.NewAsks(limits, clk, places.Of("gate"), waker.WakeAnswered)
	r := &workflowrun.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Statuses: statuses, NATS: a.conn, Liveness: workers,
		Signals: workflowrun.Sources{&workflowrun.Approvals{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}},
		Events:  a.events, StepEvents: o.stepEvents,
		Clock: clk, Rand: rand.Float64, Waker: waker, Metrics: figures, Delays: a.resultMetrics, Holder: o.holder, RequireLists: o.requireLists,
		Ballots: a.ballots, RecoverPatience: workflowrun.OthersPatience, AloneAfter: workflowrun.AloneAfter, PolicyChanged: limits.PolicyChanged, SemaphoreChanged: shared.SemaphoreChanged,
		Driven: drives, Turns: a.turns, Desks: a.desks,
		Index: index, Known: router.Orphans().Known, Leases: locks, Outputs: a.payloads, GC: collector,
		Batches:   batches,
		Stream:    &results.Stream{Answers: a.reader, Clock: clk, Asked: figures.AnswersAsked},
		Dispatch:  newDispatcher(a, drives),
		Templates: a.templates,
		Slots:     &slots.Slots{Quota: asks, Keys: limits, Asks: asks},
		Children:  newChildren(mgr, places, waker),
	}
	r.Writes, r.Holds = newWrites(o.maxWrites, places), &holds.Holds{Locks: shared, Below: r.Children.UnderWay}
	err = errors.Join(registry.Register(results.NewPhaseCounts(index, drives.Drives)), registry.Register(results.NewWaitingResults(router, a.results.Parked)),
		addTraces(mgr, o, r), r.SetupWithManager(ctx, mgr, o.maxConcurrent))
	err = errors.Join(err, addSchedules(ctx, mgr, o, a, drives, handover))
	handover.Runs, handover.Feeds, handover.Router = r, a.results, router
	locks.Cache.Before = r.Checkpoint
	err = errors.Join(err, registry.Register(ahead.Collector{Runs: &r.Ahead, Now: clk.Now}), registry.Register(r.Dispatch.Backlog), registry.Register(workers.Topics()))
	sweeper := &workflow.Sweeper{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clk, Owner: workflowrun.FieldOwner}
	handover.Once = []manager.Runnable{limits, shared, collector, sweeper, newAuditor(mgr, o, a)}
	return limits, owns, errors.Join(err, addAll(mgr, owns, word, asks, router.Orphans(), locks.Cache, untilEnd(workers.Run), untilEnd(a.conn.Watch),
		r.WatchNATS(a.conn.LossNoticed(), a.conn.OutageChanged()), watchClock(clk, mgr.GetLogger(), r.WakeNotEnded), results.NewConsumer(a.conn, a.results, router)))
}

// watchClock has all looked at again that waits for a time of the wall clock, when that was set.
func watchClock(clk clock.WithTicker, log logr.Logger, again func()) manager.Runnable {
	begin := clk.Now()
	return &clockset.Watch{Wall: clk.Now, Passed: func() time.Duration { return clk.Since(begin) }, Ticks: clk, Set: func(by time.Duration) {
		log.WithName("clock").Info("The wall clock was set, or this machine slept: runs under way are looked at again", "by", by.String())
		again()
	}}
}

// newDispatcher makes what publishes jobs. They share the stream of jobs by run and namespace.
func newDispatcher(a adapters, drives *driven.Partitions) *dispatch.Dispatcher {
	seen := func() backlog.Stream { return backlog.Stream(bus.JobsBytes(a.conn)) }
	return &dispatch.Dispatcher{
		Jobs: a.jobs, Clock: clock.RealClock{}, Recoveries: a.figures.Recoveries, Latency: a.figures.DispatchLatency, Backlog: backlog.New(seen, drives.Part),
	}
}

// newWrites bounds the status writes under way; nil: nothing does.
func newWrites(most int, places *shares.Metrics) *shares.Shares {
	if most <= 0 {
		return nil
	}
	return shares.NewWithOneMore(most, places.Of("write"))
}

// newChildren makes what creates child runs. One namespace has half of the places at most.
func newChildren(mgr manager.Manager, places *shares.Metrics, waker *workflowrun.Waker) *children.Children {
	return &children.Children{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Owner: workflowrun.FieldOwner,
		Places: shares.New(children.AtOnce, true, places.Of("create")), Wake: waker.Wake,
	}
}

// livenessOptions have as many topics watched as have a consumer.
func livenessOptions(o options, clk clock.WithTicker, log logr.Logger) liveness.Options {
	return liveness.Options{MaxTopics: o.nats.maxTopics, Clock: clk, Log: log.WithName("liveness")}
}

// addAll has the manager start and stop parts.
func addAll(mgr manager.Manager, parts ...manager.Runnable) (err error) {
	for _, part := range parts {
		err = errors.Join(err, mgr.Add(part))
	}
	return err
}

// newRouter makes what hands results to the runs that wait for them, and what settles them.
func newRouter(mgr manager.Manager, o options, a adapters, waker *workflowrun.Waker) (*results.Router, *results.Batches) {
	clk := clock.RealClock{}
	inbox := results.NewInbox(o.inboxLimit, o.inboxBytes)
	settler := results.NewSettler(inbox, a.resultMetrics)
	router := results.NewRouter(results.Options{
		Index: a.index, Inbox: inbox, Settler: settler, Live: mgr.GetAPIReader(), Clock: clk, Spread: o.spread(), Refusals: a.figures.Refusals,
		Wake: waker.Wake, WakeAfter: waker.WakeAfter,
	})
	return router, &results.Batches{
		Inbox: inbox, Settler: settler, Clock: clk, Spread: o.spread(), Applied: a.figures.Applied, PerWrite: a.figures.ResultsPerWrite,
	}
}

// addSchedules adds the controller of schedules, which works for partitions, too.
func addSchedules(ctx context.Context, mgr manager.Manager, o options, a adapters, drives *driven.Partitions, handover *workflowrun.Handover) error {
	below := &children.Children{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}}
	r := &schedule.Reconciler{
		Below: below.AnyUnderWay, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Events: a.events, Driven: drives,
		Metrics: schedule.NewMetrics(metrics.Registry), RequireLists: o.requireLists, Aside: a.aside(schedule.AtOnce / 4),
	}
	metrics.Registry.MustRegister(schedule.NewHeldCounts(ctx, mgr.GetClient(), drives.Drives))
	r.Turn = a.inTurn(schedule.AtOnce, "schedule", r.Wake)
	handover.Gained = r.Gained
	return r.SetupWithManager(ctx, mgr)
}

// newAuditor makes what compares the stores every ten minutes.
func newAuditor(mgr manager.Manager, o options, a adapters) *audit.Auditor {
	return &audit.Auditor{
		Stores: &stores.Stores{API: mgr.GetAPIReader(), Redis: a.redis, Quota: a.quota, NATS: a.conn, Clock: clock.RealClock{}},
		Live:   mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: o.namespace, Events: a.events, Clock: clock.RealClock{},
		Log: mgr.GetLogger().WithName("audit"), Metrics: audit.NewMetrics(metrics.Registry),
	}
}

// newLocks makes the controller of locks across runs.
func newLocks(mgr manager.Manager, a adapters, wake func(types.NamespacedName)) *sharedlocks.Controller {
	return sharedlocks.New(sharedlocks.Options{
		Store: a.quota, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Wake: wake, Clock: clock.RealClock{}, NewID: uuid.NewString,
		Log: mgr.GetLogger().WithName("locks"), Metrics: sharedlocks.NewMetrics(metrics.Registry),
	})
}

// wakeAnywhere wakes a run whose turn it is, in the replica that drives it.
func wakeAnywhere(index *results.Index, here *driven.Partitions, word *wakes.Channel, waker *workflowrun.Waker) func(types.NamespacedName) {
	return func(run types.NamespacedName) {
		if uid, known := index.UID(run); known && !here.Drives(uid) {
			word.Send(run)
			return
		}
		waker.WakeNext(run)
	}
}

// untilEnd is a part that runs until its context ends.
func untilEnd(run func(context.Context)) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		run(ctx)
		return nil
	})
}
