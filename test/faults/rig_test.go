// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
	"github.com/syncopate-dev/syncopate/internal/testenv/clocks"
	"github.com/syncopate-dev/syncopate/internal/testenv/door"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Parts that a rig is made of.
const (
	partOne      = "one"
	partSentinel = "sentinel"
	partCluster  = "cluster"

	replicas  = 2
	operators = "operator" // a user of NATS
	workers   = "worker"   // another
	redisUser = "syncopate"
	// valid is how long certificates are, also for who is an hour ahead.
	valid = 3 * time.Hour
)

// rig is two operators and all that they need.
type rig struct {
	tb    testing.TB
	part  string
	names protocol.Names

	authority     *certs.Authority
	servers, mine *certs.Files // of NATS, of the operators
	natsSecret    string       // directories
	redisSecret   string

	nats     *natstest.Nodes
	one      *redistest.One
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster

	js  jetstream.JetStream // with all rights
	job jetstream.JetStream // of workers

	answers   *answers
	api       *door.Door   // before the answers
	redisWays []*door.Door // of each operator; part one only
	natsWays  []*door.Door
	operators []*operator
	redisTime *clocks.Clock      // of all servers of Redis; nil where clocks are right
	counts    map[string]float64 // of operators that are gone
}

// operator is a replica that is killed and started again.
type operator struct {
	name string
	args []string
	time *clocks.Clock // nil where clocks are right
	now  *devenv.Manager
}

func newRig(ctx context.Context, tb testing.TB, part string) *rig {
	tb.Helper()
	needSite(ctx, tb)
	g := &rig{tb: tb, part: part, names: protocol.Names{Prefix: protocol.DefaultPrefix}, authority: certs.NewAuthority(tb), counts: map[string]float64{}}
	g.servers, g.mine = g.authority.Issue(valid), g.authority.Issue(valid)
	g.natsSecret, g.redisSecret = tb.TempDir(), tb.TempDir()
	g.put(g.natsSecret, "user", operators)
	g.put(g.natsSecret, "password", "first")
	g.put(g.redisSecret, "username", redisUser)
	g.put(g.redisSecret, "password", "first")
	g.put(g.redisSecret, "sentinelPassword", redistest.SentinelPassword)
	size := 3
	if part == partOne {
		size = 1
	}
	g.nats = natstest.StartNodes(tb, size, g.servers,
		rights.User{Name: operators, Password: "first", May: rights.Operator(g.names)},
		rights.User{Name: workers, Password: "worker", May: rights.Worker(g.names, book.Topic)})
	g.js, g.job = g.dial(natstest.Admin), g.dial(workers)
	g.startRedis()
	g.answers = startAnswers(tb, g.authority.Issue(24*time.Hour))
	g.api = door.New(tb, g.answers.addr)
	kubeconfig := g.answers.kubeconfig(g.api.Addr())
	for i := range replicas {
		o := &operator{name: fmt.Sprintf("%s-%d", part, i), args: g.args(i, kubeconfig)}
		if site.clocks {
			o.time = clocks.New(tb)
		}
		g.operators = append(g.operators, o)
	}
	tb.Cleanup(func() {
		for _, o := range g.operators {
			if o.now == nil {
				continue
			}
			_ = o.now.Kill()
			if tb.Failed() {
				tb.Logf("end of the log of %s:\n%s", o.name, tail(o.now.Log, 6<<10))
			}
		}
	})
	for _, o := range g.operators {
		g.launch(ctx, o)
	}
	g.awaitOperators(ctx)
	return g
}

func (g *rig) startRedis() {
	g.tb.Helper()
	user := redistest.Login{Name: redisUser, Password: "first", Rights: rights.Redis(g.part == partCluster)}
	// With a certificate of its own: where that of NATS has expired, a Redis that starts again has
	// one that is valid.
	host := redistest.Host{TLS: g.authority.Issue(valid)}
	if site.clocks {
		g.redisTime = clocks.New(g.tb)
		host.Env = g.redisTime.Env(clocks.Preload(g.tb))
	}
	switch g.part {
	case partSentinel:
		g.sentinel = redistest.StartSentinel(g.tb, host, user)
	case partCluster:
		g.cluster = redistest.StartCluster(g.tb, host, user)
	default:
		g.one = redistest.StartOne(g.tb, host, user)
		for range replicas {
			g.redisWays = append(g.redisWays, door.New(g.tb, g.one.Addrs()))
			g.natsWays = append(g.natsWays, door.New(g.tb, strings.TrimPrefix(g.nats.URL(), "tls://")))
		}
	}
}

func (g *rig) args(i int, kubeconfig string) []string {
	args := []string{
		"--leader-elect=true", "--ownership=shards", "--kubeconfig", kubeconfig,
		"--nats-auth-dir", g.natsSecret, "--nats-ca", g.mine.CA, "--nats-cert", g.mine.Cert, "--nats-key", g.mine.Key,
		"--redis-auth-dir", g.redisSecret, "--redis-ca", g.mine.CA, "--redis-cert", g.mine.Cert, "--redis-key", g.mine.Key,
	}
	switch g.part {
	case partSentinel:
		return append(args, "--nats-url", g.nats.URL(), "--nats-replicas=3", "--redis-addrs", g.sentinel.SentinelAddrs(), "--redis-master", redistest.MasterName)
	case partCluster:
		return append(args, "--nats-url", g.nats.URL(), "--nats-replicas=3", "--redis-addrs", g.cluster.Nodes[0].Addr(), "--redis-cluster")
	default:
		return append(args, "--nats-url", "tls://"+g.natsWays[i].Addr(), "--redis-addrs", g.redisWays[i].Addr())
	}
}

// dial connects to NATS for as long as the test lasts.
func (g *rig) dial(user string) jetstream.JetStream {
	g.tb.Helper()
	nc, err := nats.Connect(g.nats.URL(), append(g.nats.Options(user), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(look), nats.PingInterval(2*time.Second), nats.Timeout(2*time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		g.tb.Fatal(err)
	}
	return js
}

func (g *rig) put(dir, entry, value string) {
	g.tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, entry), []byte(value+"\n"), 0o600); err != nil {
		g.tb.Fatal(err)
	}
}

// launch starts an operator; it need not be ready.
func (g *rig) launch(ctx context.Context, o *operator) {
	g.tb.Helper()
	var env []string
	if o.time != nil {
		env = o.time.Env("")
	}
	var err error
	if o.now, err = site.env.StartManagerIn(ctx, env, site.binary, o.name, o.args...); err != nil {
		g.tb.Fatal(err)
	}
}

// startAPIServer starts that of the operators again, and returns when it is ready.
func (g *rig) startAPIServer(ctx context.Context) {
	g.tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := site.api.Start(ctx); err != nil {
		g.tb.Fatal(err)
	}
}

// revive starts operators that ended by themselves. Only a fault of the API server excuses them:
// one that leads and does not reach it ends, and whoever runs it starts it again.
func (g *rig) revive(ctx context.Context, faults []fault) {
	g.tb.Helper()
	for _, o := range g.operators {
		select {
		case <-o.now.Done():
		default:
			continue
		}
		if !slices.ContainsFunc(faults, func(f fault) bool { return f.to == toAPI }) {
			g.tb.Fatalf("%s ended by itself", o.name)
		}
		g.tb.Logf("%s ended, and is started again", o.name)
		g.launch(ctx, o)
	}
}

func (g *rig) awaitOperators(ctx context.Context) {
	g.tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, o := range g.operators {
		if err := o.now.Ready(ctx); err != nil {
			g.tb.Fatal(err)
		}
	}
}

func tail(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(text[max(0, len(text)-n):]), "")
}
