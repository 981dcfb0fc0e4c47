// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// options are the operator's settings, as flags give them and complete checks them.
type options struct {
	namespace   string
	holder      string
	ownership   string
	lease       time.Duration
	leaderLease time.Duration
	leaderElect bool
	metricsAddr string

	metricsSecure  bool
	metricsCertDir string
	probeAddr      string
	pprofAddr      string
	maxConcurrent  int
	maxWrites      int
	inboxLimit     int
	inboxBytes     int64
	kubeQPS        float64
	memoryPercent  int
	memoryGoal     int64 // bytes; 0: none
	requireLists   bool
	exactDelays    bool
	stepEvents     bool
	nats           natsOptions
	redis          redisOptions
	webhook        webhookOptions
	traces         traceOptions
}

// Values of --ownership.
const (
	ownShards = "shards"
	ownLeader = "leader"
)

// Bounds of --ownership-lease and --leader-lease: a third of the least is a renewal each second,
// and nobody waits for longer than the most for what a dead replica had.
const (
	leastLease       = 3 * time.Second
	leastLeaderLease = 6 * time.Second
	mostLease        = time.Minute
)

// shards says whether several replicas share the runs.
func (o *options) shards() bool { return o.leaderElect && o.ownership == ownShards }

// maxHolder is the bound of status.lock.holder.
const maxHolder = 253

// leastInboxBytes is what a result of any size needs to find room beside others.
const leastInboxBytes = 1 << 20

func (o *options) bind(f *flag.FlagSet) {
	f.StringVar(&o.namespace, "namespace", "", "Namespace of the operator's own objects (result keys, leader election); default $POD_NAMESPACE, else syncopate-system.")
	f.StringVar(&o.holder, "holder", "", "Name of this replica in lock status; default $POD_NAME, else the host name with the process id.")
	f.StringVar(&o.ownership, "ownership", ownShards, "Who drives which runs: shards, all replicas drive runs, each those of some of 64 partitions; leader, one replica drives all, and the others stand by.")
	f.DurationVar(&o.lease, "ownership-lease", 6*time.Second, "How long the Lease of a replica counts after its last renewal, in whole seconds; it is renewed three times as often, and who does not renew it stops a sixth before. The same for all replicas: docs/ownership.md.")
	f.DurationVar(&o.leaderLease, "leader-lease", 15*time.Second, "With --ownership=leader, how long the Lease of the leader counts after its last renewal, in whole seconds; who cannot renew it for two thirds of that ends.")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "Ask before driving runs. false: this replica drives all runs at once, whatever others do; for tests.")
	f.StringVar(&o.metricsAddr, "metrics-bind-address", ":8443", "Address of the metrics endpoint; 0 switches it off.")
	f.BoolVar(&o.metricsSecure, "metrics-secure", true, "Serve metrics by TLS, and only to who may get /metrics: the API server is asked for each token. false: in the clear, to all.")
	f.StringVar(&o.metricsCertDir, "metrics-cert-dir", "", "Directory of tls.crt and tls.key for the metrics, read again when they change; empty: a certificate is made at each start, and nobody can verify it.")
	f.StringVar(&o.probeAddr, "health-probe-bind-address", ":8081", "Address of livez and readyz.")
	f.StringVar(&o.pprofAddr, "pprof-bind-address", pprofOff, "Loopback address of profiles (net/http/pprof), as 127.0.0.1:6060, or localhost:6060; 0 switches them off. They show what is in memory, so other addresses are refused.")
	f.IntVar(&o.maxConcurrent, "max-concurrent-runs", 16, "Runs worked on at the same time, and eight more that need a desk. Those of one namespace have half of the places at most.")
	f.IntVar(&o.maxWrites, "max-concurrent-writes", 4, "Status writes at the same time, and one more for a namespace that has none. More than the API server has cores to work on only wait there, where runs whose turn it is at their tenant's gate cannot go first.")
	f.IntVar(&o.inboxLimit, "inbox-limit", 10000, "Results that may wait in memory; more go back to NATS for a while. A run, and a namespace, has a share of them.")
	f.Int64Var(&o.inboxBytes, "inbox-bytes", 96<<20, "Bytes that they may hold of the memory; a run, and a namespace, has a share of them.")
	f.BoolVar(&o.requireLists, "require-allow-lists", false, "Namespaces without the annotations allowed-workload-classes and allowed-topics may use none; else all.")
	f.BoolVar(&o.exactDelays, "exact-delays", false, "Wait exactly as long as is documented before what failed is tried again, without the +-20 % that keeps many from coming back together. Waits for busy locks are as their LockPolicy says in any case.")
	f.BoolVar(&o.stepEvents, "step-events", false, "Write an event of each step of each run, beside those of a run's begin, its end and its warnings. A run's annotation syncopate.dev/step-events goes before it.")
	f.Float64Var(&o.kubeQPS, "kube-api-qps", -1, "Limit of requests a second to the API server, of which twice as many go at once; negative means none (its own priority and fairness applies).")
	f.IntVar(&o.memoryPercent, "memory-percent", 75, "Share of $MEMORY_LIMIT, the container's limit in bytes, that the garbage collector aims at; 0: none. $GOMEMLIMIT goes before it.")
	o.nats.bind(f)
	o.redis.bind(f)
	o.webhook.bind(f)
	o.traces.bind(f)
}

// complete fills in what the environment gives and refuses what cannot work.
func (o *options) complete(getenv func(string) string) error {
	o.namespace = firstOf(o.namespace, getenv("POD_NAMESPACE"), "syncopate-system")
	o.holder = firstOf(o.holder, getenv("POD_NAME"))
	if o.holder == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find a name for this replica: %w", err)
		}
		o.holder = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	o.nats.user, o.nats.password = getenv("NATS_USER"), getenv("NATS_PASSWORD")
	o.redis.fromEnv(getenv)
	var err error
	if o.memoryGoal, err = memoryGoal(o.memoryPercent, getenv); err != nil {
		return err
	}
	return errors.Join(o.traces.complete(getenv), o.check())
}

// check lists everything that cannot work.
func (o *options) check() error {
	var problems []error
	if len(o.holder) > maxHolder {
		problems = append(problems, fmt.Errorf("--holder: %d characters, at most %d", len(o.holder), maxHolder))
	}
	if o.shards() && strings.HasPrefix(memberName(o.holder, ""), ".") {
		problems = append(problems, fmt.Errorf("--holder %q: need a letter or a digit in the first %d", o.holder, longestPod))
	}
	if bus.CheckPrefix(o.nats.prefix) != nil {
		problems = append(problems, fmt.Errorf("--nats-prefix %q: need 1 to 32 of a-z, 0-9, -", o.nats.prefix))
	}
	if r := o.nats.replicas; r != 1 && r != 3 && r != 5 {
		problems = append(problems, fmt.Errorf("--nats-replicas %d: need 1, 3 or 5", r))
	}
	problems = append(append(append(problems, o.checkOwnership()...), o.redis.check()...), append(o.checkBounds(), o.checkGiven()...)...)
	return errors.Join(append(problems, checkPprof(o.pprofAddr), o.webhook.check())...)
}

// checkOwnership lists what replicas cannot share runs by.
func (o *options) checkOwnership() (problems []error) {
	if o.ownership != ownShards && o.ownership != ownLeader {
		problems = append(problems, fmt.Errorf("--ownership %q: need %s or %s", o.ownership, ownShards, ownLeader))
	}
	for _, f := range []struct {
		name         string
		lease, least time.Duration
	}{{"--ownership-lease", o.lease, leastLease}, {"--leader-lease", o.leaderLease, leastLeaderLease}} {
		if f.lease < f.least || f.lease > mostLease || f.lease%time.Second != 0 {
			problems = append(problems, fmt.Errorf("%s %s: need whole seconds, %s to %s", f.name, f.lease, f.least, mostLease))
		}
	}
	return problems
}

// checkBounds lists the bounds that leave no room for anything.
func (o *options) checkBounds() (problems []error) {
	for _, f := range []struct {
		name string
		n    int
	}{{"--max-concurrent-runs", o.maxConcurrent}, {"--max-concurrent-writes", o.maxWrites}, {"--inbox-limit", o.inboxLimit}, {"--nats-max-ack-pending", o.nats.maxAckPending}, {"--nats-max-topics", o.nats.maxTopics}, {"--nats-result-ack-pending", o.nats.resultAckPending}} {
		if f.n < 1 {
			problems = append(problems, fmt.Errorf("%s %d: need at least 1", f.name, f.n))
		}
	}
	if s := o.nats.storage; s != 0 && s < leastStorage {
		problems = append(problems, fmt.Errorf("--nats-storage %s: need at least 256Mi, or 0 for no limits", s.String()))
	}
	if o.inboxBytes < leastInboxBytes {
		problems = append(problems, fmt.Errorf("--inbox-bytes %d: need at least %d", o.inboxBytes, leastInboxBytes))
	}
	if q := float32(o.kubeQPS); q == 0 || math.IsNaN(float64(q)) { // 0 would be the default of client-go
		problems = append(problems, fmt.Errorf("--kube-api-qps %v: need more than 0, or less for no limit", o.kubeQPS))
	}
	return problems
}

// checkGiven lists what has to be said, and cannot be left empty.
func (o *options) checkGiven() (problems []error) {
	if o.metricsAddr == "" { // controller-runtime would make it :8080
		problems = append(problems, errors.New(`--metrics-bind-address "": need an address, or 0 for none`))
	}
	if o.probeAddr == "" { // any port that is free
		problems = append(problems, errors.New(`--health-probe-bind-address "": need an address`))
	}
	if (o.nats.certFile == "") != (o.nats.keyFile == "") {
		problems = append(problems, errors.New("--nats-cert and --nats-key: need both, or none"))
	}
	return problems
}

// spread draws for all waits but those for busy locks: uniform, or always the middle
// of their range.
func (o *options) spread() func() float64 {
	if o.exactDelays {
		return func() float64 { return 0.5 }
	}
	return rand.Float64
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
