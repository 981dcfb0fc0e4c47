// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/lockpolicy"
	"github.com/syncopate-dev/syncopate/internal/controller/stepapproval"
	"github.com/syncopate-dev/syncopate/internal/controller/workflow"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/runwatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/templates"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/policynames"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
	"github.com/syncopate-dev/syncopate/internal/webhook"
)

const (
	// leaderElectionID names the Lease of the leader. Replicas that share the runs respect it, too.
	leaderElectionID = ownership.LeaderLeaseName
	// logEvery is how many tries in a row are logged as one.
	logEvery = 15
	// stopTimeout bounds the end: leases are released and results handed back within it.
	stopTimeout = 10 * time.Second
)

// run wires the operator and runs it until ctx ends.
func run(ctx context.Context, o options) error {
	if err := noticeDeadConnections(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	limitRequests(config, o.kubeQPS)
	config.DisableCompression = true // in a cluster it costs both sides more than it saves
	config.Wrap(newCreationsAtOnce)
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	ready, err := serveProbes(ctx, o.probeAddr, ctrl.Log.WithName("readyz"))
	if err != nil {
		return err
	}
	defer ready.stop()
	return work(ctx, o, config, scheme, ready)
}

// limitRequests bounds the requests a second to the API server. At once go twice as many.
func limitRequests(config *rest.Config, qps float64) {
	config.QPS = float32(qps)
	if qps > 0 { // else there is no limit
		config.Burst = int(min(max(1, 2*qps), 1<<30))
	}
}

// work is run with what answers probes.
func work(ctx context.Context, o options, config *rest.Config, scheme *runtime.Scheme, ready *probes) error {
	log := ctrl.Log
	self, err := waitForIdentity(ctx, config, scheme, o, ready)
	if err != nil {
		return err
	}
	writes := runwatch.NewWrites(clock.RealClock{})
	mgr, err := newManager(ctx, config, scheme, o, writes, ready)
	if err != nil {
		return err
	}
	self.homeGone = newHomes(mgr.GetAPIReader(), clock.RealClock{}).gone
	redis, err := newRedis(o.redis, log.WithName("redis"))
	if err != nil {
		return err
	}
	secret, err := newKeySource(mgr, o.namespace, log.WithName("keys"), newKeyMetrics(metrics.Registry))
	if err != nil {
		return errors.Join(err, redis.Close())
	}
	newProcessMetrics(metrics.Registry, time.Now())
	names := policynames.New()
	lockMetrics := lockmgr.NewMetrics(metrics.Registry, names)
	process := lockmgr.NewProcess()
	locks := lockmgr.New(redis, lockmgr.Options{
		Holder: o.holder, Process: process, Clock: clock.RealClock{}, Rand: rand.Float64, Spread: o.spread(), NewID: uuid.NewString,
		Log: log.WithName("lockmgr"), Metrics: lockMetrics,
	})
	agreed := newAgreement(o)
	gate := newGate(redis, mgr, o, self, lockMetrics, agreed.naming())
	past := &history{api: mgr.GetAPIReader(), redis: gate, clock: clock.RealClock{}, log: log.WithName("history")}
	if err = past.look(ctx); err != nil { // before anything is sent, taken or dropped
		return errors.Join(err, redis.Close())
	}
	broker, err := newBroker(ctx, o, self, secret.load, log.WithName("bus"))
	if err != nil {
		return errors.Join(fmt.Errorf("configure NATS: %w", err), redis.Close())
	}
	a := adapters{
		redis: redis, locks: locks, lockMetrics: lockMetrics, broker: broker, quota: gate, agreed: agreed, config: config, installation: self.installation, process: process,
		revisions: &revisions.Store{Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Owner: workflowrun.FieldOwner},
		writes:    writes, index: results.NewIndex(), figures: workflowrun.NewMetrics(metrics.Registry, names), names: names,
	}
	recording, stopEvents := context.WithCancel(context.WithoutCancel(ctx)) // what ends while the manager stops is told, too
	defer stopEvents()
	alive, err := apiServerAnswers(config)
	if err = errors.Join(err, a.recordEvents(recording, mgr)); err != nil {
		return errors.Join(err, stop(context.WithoutCancel(ctx), locks, broker.conn, redis.Close))
	}
	err = errors.Join(setup(ctx, mgr, o, a, ready), mgr.Add(past), followKeys(ctx, mgr, config, o.namespace, broker.keys.Reload),
		mgr.Add(newReady(ready, "redis", redisReady(locks, gate))), mgr.Add(newReady(ready, "nats", broker.conn.Ready)), mgr.Add(newReady(ready, "apiserver", alive)))
	if err == nil {
		err = mgr.Start(ctx)
	}
	return errors.Join(err, stop(context.WithoutCancel(ctx), locks, broker.conn, redis.Close))
}

// stop releases all leases, so that the next leader need not wait for them, and
// closes the connections.
func stop(ctx context.Context, locks *lockmgr.Manager, nats *bus.Conn, closeRedis func() error) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	half, enough := context.WithTimeout(ctx, stopTimeout/2) // with Redis down that is all it takes; results are to be handed back too
	defer enough()
	err := locks.Close(half)
	nats.Close(ctx)
	return errors.Join(err, closeRedis())
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	return scheme, nil
}

// waitForIdentity loads the result keys and the cluster's name, and tries again while the API
// server cannot be reached or the keys cannot be used.
func waitForIdentity(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, o options, ready *probes) (identity, error) {
	ready.apiServer(errors.New("not reached yet"))
	replicas := newOthers(o, clock.RealClock{})
	for try := 0; ; try++ {
		self, err := loadOnce(ctx, config, scheme, o.namespace, replicas)
		if err == nil {
			return self, nil
		}
		ready.apiServer(err)
		if try%logEvery == 0 {
			ctrl.Log.WithName("setup").Info("Result keys are not there yet, trying on", "delay", probePause, "cause", err.Error())
		}
		select {
		case <-ctx.Done():
			return identity{}, fmt.Errorf("load result keys: %w", err)
		case <-time.After(probePause):
		}
	}
}

func loadOnce(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, namespace string, replicas *others) (identity, error) {
	known := meta.NewDefaultRESTMapper(nil) // else the API server is asked for all kinds that it has
	known.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	known.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	known.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: known})
	if err != nil {
		return identity{}, fmt.Errorf("reach the API server: %w", err)
	}
	return loadIdentity(ctx, c, namespace, replicas)
}

func newManager(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, o options, writes *runwatch.Writes, ready *probes) (manager.Manager, error) {
	grace, renew, retry := stopTimeout, o.leaderLease*2/3, o.leaderLease*2/15
	informers, err := watchOf(config, scheme, writes)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cached(informers),
		Metrics:                       o.metrics(),
		HealthProbeBindAddress:        "0", // probes answers
		PprofBindAddress:              o.pprofAddr,
		LeaderElection:                o.leaderElect && !o.shards(),
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.namespace,
		LeaseDuration:                 &o.leaderLease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		LeaderElectionReleaseOnCancel: true, // main ends right after the manager stops
		GracefulShutdownTimeout:       &grace,
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	ready.add("caches", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not synced: is the API server reachable, are the CRDs installed, and may the operator list them (SYN108)?")
		}
		return nil
	})
	return mgr, warmCaches(ctx, mgr.GetCache())
}

// watchOf makes informers of which that of runs does not decode what this process wrote.
func watchOf(config *rest.Config, scheme *runtime.Scheme, writes *runwatch.Writes) (runwatch.NewInformer, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of watches: %w", err)
	}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "syncopate_run_events_total", Help: "Events of the watch of runs, by how they were read: own, a write of this process, or decoded.",
	}, []string{"how"})
	metrics.Registry.MustRegister(events)
	own, decoded := events.WithLabelValues("own"), events.WithLabelValues("decoded")
	return runwatch.Informers(config, c, scheme, writes, func(isOwn bool) {
		if isOwn {
			own.Inc()
		} else {
			decoded.Inc()
		}
	})
}

// warmKinds are the kinds that controllers watch, or read from the cache.
func warmKinds() []client.Object {
	return []client.Object{
		&v1alpha1.WorkflowRun{}, &v1alpha1.LockPolicy{}, &v1alpha1.Semaphore{}, workflowrun.WorkflowKind(), &v1alpha1.StepApproval{}, &v1alpha1.Schedule{},
		&corev1.Namespace{},
	}
}

// warmCaches has replicas that stand by hold what they need when they become the leader, and readyz
// say whether they do. A kind that is not among them is asked for when the controllers start, and
// until it is there no worker makes a pass: a replica would call itself ready while runs stand
// still.
func warmCaches(ctx context.Context, replica cache.Cache) error {
	for _, kind := range warmKinds() {
		if _, err := replica.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

func newReady(ready *probes, name string, look func(context.Context) error) *probe {
	p := newProbe(clock.RealClock{}, look)
	ready.put(check{name: name, run: p.ready, reached: p.reached})
	return p
}

// setup adds the controllers and the webhook.
func setup(ctx context.Context, mgr manager.Manager, o options, a adapters, ready *probes) error {
	a.ballots, a.sharing = ballot.NewBox(metrics.Registry, a.names), newSharing(o)
	a.templates = templates.New(mgr.GetAPIReader(), a.revisions, clock.RealClock{}, templates.MaxBytes)
	gates, owner, err := addRuns(ctx, mgr, o, a)
	if err != nil {
		return err
	}
	ready.add("ownership", joined(owner))
	policies := &lockpolicy.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Metrics: metrics.Registry, Names: a.names, Events: a.events,
		Ballots: a.ballots, Process: o.holder + "/" + uuid.NewString(), Namespace: o.namespace,
		Elected: func() bool { return owner.Owns(ownership.Singletons) },
	}
	policies.RegisterMetrics(metrics.Registry)
	approvals := &stepapproval.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	approvals.Turn = a.inTurn(stepapproval.AtOnce, "approval", approvals.Wake)
	workflows := &workflow.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Revisions: a.revisions, Clock: clock.RealClock{}, Owner: workflowrun.FieldOwner,
		Aside: a.aside(workflow.AtOnce / 2),
	}
	workflows.Turn = a.inTurn(workflow.AtOnce, "workflow", workflows.Wake)
	return errors.Join(policies.SetupWithManager(mgr), workflows.SetupWithManager(mgr), approvals.SetupWithManager(mgr),
		addWebhook(mgr, o, webhook.Options{Gate: gates, Ready: ready.add, Revisions: a.templates}))
}
