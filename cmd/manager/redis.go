// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// redisLogger puts what go-redis says into the operator's log: it says each failed connection,
// which is much during an outage.
type redisLogger struct{ log logr.Logger }

// Printf implements go-redis' logger.
func (l redisLogger) Printf(_ context.Context, format string, v ...any) {
	l.log.V(1).Info("Redis client", "text", fmt.Sprintf(format, v...))
}

type redisOptions struct {
	addrs      string
	masterName string
	cluster    bool
	files      lockmgr.Files
	username   string // REDIS_USERNAME
	password   string // REDIS_PASSWORD
	// Of the sentinels: REDIS_SENTINEL_USERNAME, REDIS_SENTINEL_PASSWORD.
	sentinelUsername, sentinelPassword string
}

func (o *redisOptions) bind(f *flag.FlagSet) {
	f.StringVar(&o.addrs, "redis-addrs", "127.0.0.1:6379", "Redis addresses, separated by commas: one server, several cluster nodes, or sentinels with --redis-master.")
	f.StringVar(&o.masterName, "redis-master", "", "Name of the master that the sentinels watch.")
	f.BoolVar(&o.cluster, "redis-cluster", false, "The address is that of a Redis Cluster; several addresses without --redis-master always are.")
	f.BoolVar(&o.files.TLS, "redis-tls", false, "Use TLS for Redis. User and password come from $REDIS_USERNAME and $REDIS_PASSWORD, those for the sentinels from $REDIS_SENTINEL_USERNAME and $REDIS_SENTINEL_PASSWORD.")
	f.StringVar(&o.files.CA, "redis-ca", "", "CA certificates to verify Redis with; implies --redis-tls. Read for each connection.")
	f.StringVar(&o.files.Cert, "redis-cert", "", "Client certificate for Redis; implies --redis-tls. Read for each connection.")
	f.StringVar(&o.files.Key, "redis-key", "", "Key of the client certificate for Redis.")
	f.StringVar(&o.files.AuthDir, "redis-auth-dir", "", "Directory of a mounted Secret with the entries username, password, sentinelUsername and sentinelPassword, which go before the variables. The first two are read for each connection.")
}

// fromEnv fills in what is no flag.
func (o *redisOptions) fromEnv(getenv func(string) string) {
	o.username, o.password = getenv("REDIS_USERNAME"), getenv("REDIS_PASSWORD")
	o.sentinelUsername, o.sentinelPassword = getenv("REDIS_SENTINEL_USERNAME"), getenv("REDIS_SENTINEL_PASSWORD")
}

// check lists what cannot work.
func (o *redisOptions) check() (problems []error) {
	for addr := range strings.SplitSeq(o.addrs, ",") {
		if strings.TrimSpace(addr) == "" {
			problems = append(problems, fmt.Errorf("--redis-addrs %q: need at least one address, and none may be empty", o.addrs))
			break
		}
	}
	if o.cluster && o.masterName != "" {
		problems = append(problems, fmt.Errorf("--redis-cluster and --redis-master %s: sentinels watch no Cluster", o.masterName))
	}
	return problems
}

// newRedis makes the client for locks; it does not need Redis to be there.
func newRedis(o redisOptions, log logr.Logger) (redis.UniversalClient, error) {
	redis.SetLogger(redisLogger{log})
	config := lockmgr.ClientConfig{
		Addrs: strings.Split(strings.ReplaceAll(o.addrs, " ", ""), ","), MasterName: o.masterName, Cluster: o.cluster,
		Username: o.username, Password: o.password, SentinelUsername: o.sentinelUsername, SentinelPassword: o.sentinelPassword,
	}
	if err := o.files.Apply(&config); err != nil {
		return nil, fmt.Errorf("configure Redis: %w", err)
	}
	client, err := lockmgr.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("configure Redis: %w", err)
	}
	return client, nil
}

// newGate makes the store of slots and of locks across runs, which knows whose Redis is, which one,
// and since when.
func newGate(client redis.UniversalClient, mgr manager.Manager, o options, self identity, figures *lockmgr.Metrics, naming store.Naming) *store.Store {
	of := gateOptions(o, self, figures, store.NewMetrics(metrics.Registry, 0))
	// What a cache says may be old: what was used last is read live.
	record := &ownership.Record{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Namespace: o.namespace, Log: ctrl.Log.WithName("redis")}
	of.Naming, of.Since = naming, record.Since
	return store.New(client, of)
}

// agreement is which Redis this process uses. One of the two is nil.
type agreement struct {
	all  *ownership.Redis // replicas share the runs: one that all use
	lead *lead            // one leads: its own
}

func newAgreement(o options) agreement {
	if !o.shards() {
		return agreement{lead: &lead{fresh: uuid.NewString()}}
	}
	return agreement{all: ownership.NewRedis(uuid.NewString())}
}

// naming has Redis named, and asked for its name.
func (a agreement) naming() store.Naming {
	if a.all != nil {
		return a.all
	}
	return a.lead
}

// lead says which Redis a leader uses: the one that it has. Others may have another one, and use
// nothing in it but reservations.
type lead struct {
	fresh string // what a Redis without a name is to be called
	owner atomic.Pointer[ownership.Alone]
}

// Name implements store.Naming.
func (l *lead) Name() string { return l.fresh }

// Named implements store.Naming. A process leads once at most. A Redis that takes no name yet, as a
// full one, is used without a note: its data could not be counted again, and it has to get room.
func (l *lead) Named(name string) (use int64, err error) {
	if owner := l.owner.Load(); name != "" && owner != nil && owner.Owns(ownership.Singletons) {
		return 1, nil
	}
	return 0, nil
}

func gateOptions(o options, self identity, figures *lockmgr.Metrics, of *store.Metrics) store.Options {
	return store.Options{
		Clock: clock.RealClock{}, Rand: rand.Float64, Spread: o.spread(), NewID: uuid.NewString, Log: ctrl.Log.WithName("admission"),
		Metrics: of, Explain: lockmgr.Explain,
		Installation: self.installation, Home: self.home, HomeGone: self.homeGone, TakeOver: o.nats.takeOver,
		Nameless: !o.shards(),
		OnBusyRetry: func(policy string, fixed bool, delay time.Duration) {
			figures.BusyRetry("admission", bus.ClassLockBusy, policy, fixed, delay)
		},
		OnTaken: func(policy string, retries int) { figures.Taken("admission", policy, retries) },
	}
}

// redisReady says why Redis cannot be used: it is not there, is another installation's, or is not
// the one of the other replicas.
func redisReady(locks *lockmgr.Manager, quota *store.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := locks.Ping(ctx); err != nil {
			return err
		}
		return store.Own(ctx, quota)
	}
}
