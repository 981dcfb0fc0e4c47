// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
)

const (
	// childConfig is the environment variable that makes a test binary a nats-server, with the
	// path of its configuration.
	childConfig = "NATSTEST_CONFIG"
	// Admin is a user of the account with all rights in it.
	Admin        = "admin"
	nodesTimeout = 2 * time.Minute
	nodesPoll    = 50 * time.Millisecond
)

// Nodes are nats-servers in processes of their own, which are one cluster if they are several, with
// TLS and an account whose users have the rights that they need.
type Nodes struct {
	tb    testing.TB
	dir   string
	users []rights.User
	tls   *certs.Files // nil: plain text
	nodes []*node
}

type node struct {
	name          string
	port, cluster int
	dir, config   string
	cmd           *exec.Cmd
	exited        chan struct{}
}

// StartNodes runs n servers until the test ends. The passwords of users are plain. The test's
// TestMain must call Main.
func StartNodes(tb testing.TB, n int, tls *certs.Files, users ...rights.User) *Nodes {
	tb.Helper()
	c := &Nodes{tb: tb, dir: tb.TempDir(), tls: tls}
	c.users = append(slices.Clone(users), rights.User{Name: Admin, Password: "all-rights", May: rights.NATS{Publish: []string{">"}, Subscribe: []string{">"}}})
	free := freePorts(tb, 2*n)
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		c.nodes = append(c.nodes, &node{name: name, port: free[i], cluster: free[n+i], dir: filepath.Join(c.dir, name), config: filepath.Join(c.dir, name+".conf")})
	}
	c.writeAccounts()
	for i, s := range c.nodes {
		if err := os.WriteFile(s.config, []byte(c.configOf(s)), 0o600); err != nil {
			tb.Fatal(err)
		}
		c.begin(i)
	}
	tb.Cleanup(func() {
		for i := range c.nodes {
			c.Kill(i)
		}
	})
	c.AwaitReady()
	return c
}

func (c *Nodes) configOf(s *node) string {
	var b strings.Builder
	sync := ""
	if len(c.nodes) > 1 {
		// As docs/production.md asks for. A server that is killed loses what it confirmed and only
		// has in its buffers; with another that lags it is a majority which lacks that.
		sync = ", sync_interval: always"
	}
	fmt.Fprintf(&b, "server_name: %s\nlisten: \"127.0.0.1:%d\"\njetstream: {store_dir: %q, max_mem: 64MB, max_file: 4GB%s}\nlog_file: %q\ninclude \"accounts.conf\"\n",
		s.name, s.port, s.dir, sync, c.log(s))
	block := ""
	if c.tls != nil {
		block = fmt.Sprintf("tls: {cert_file: %q, key_file: %q, ca_file: %q, verify: true, timeout: 10}\n", c.tls.Cert, c.tls.Key, c.tls.CA)
		b.WriteString(block)
	}
	if len(c.nodes) > 1 {
		var routes []string
		for _, other := range c.nodes {
			routes = append(routes, fmt.Sprintf("\"nats://127.0.0.1:%d\"", other.cluster))
		}
		fmt.Fprintf(&b, "cluster: {\n name: parts\n listen: \"127.0.0.1:%d\"\n routes: [%s]\n %s}\n", s.cluster, strings.Join(routes, ", "), block)
	}
	return b.String()
}

func (c *Nodes) log(s *node) string { return filepath.Join(c.dir, s.name+".log") }

func (c *Nodes) writeAccounts() {
	c.tb.Helper()
	users := slices.Clone(c.users)
	for i := range users {
		users[i].Password = fmt.Sprintf("%q", users[i].Password)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "accounts.conf"), []byte(rights.Account("SYNCOPATE", users...)), 0o600); err != nil {
		c.tb.Fatal(err)
	}
}

// begin starts a server; it need not be ready.
func (c *Nodes) begin(i int) {
	c.tb.Helper()
	s := c.nodes[i]
	s.cmd = exec.CommandContext(context.WithoutCancel(c.tb.Context()), os.Args[0])
	s.cmd.Env = append(os.Environ(), childConfig+"="+s.config)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		c.tb.Fatalf("start nats-server: %v", err)
	}
	s.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // it is killed in the end
		close(exited)
	}(s.cmd, s.exited)
}

// Len is how many servers there are.
func (c *Nodes) Len() int { return len(c.nodes) }

// URL names all servers, with commas between.
func (c *Nodes) URL() string {
	scheme := "nats"
	if c.tls != nil {
		scheme = "tls"
	}
	urls := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		urls[i] = fmt.Sprintf("%s://127.0.0.1:%d", scheme, s.port)
	}
	return strings.Join(urls, ",")
}

// Kill ends a server at once (SIGKILL).
func (c *Nodes) Kill(i int) {
	s := c.nodes[i]
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.exited
}

// Start starts a server that was killed, on its port and its store.
func (c *Nodes) Start(i int) { c.tb.Helper(); c.begin(i) }

// LoseDisk empties the store of a server that was killed.
func (c *Nodes) LoseDisk(i int) {
	c.tb.Helper()
	if err := os.RemoveAll(c.nodes[i].dir); err != nil {
		c.tb.Fatal(err)
	}
}

// Pause stops a server where it is (SIGSTOP).
func (c *Nodes) Pause(i int) { c.tb.Helper(); c.signal(i, syscall.SIGSTOP) }

// Resume lets it go on (SIGCONT).
func (c *Nodes) Resume(i int) { c.tb.Helper(); c.signal(i, syscall.SIGCONT) }

func (c *Nodes) signal(i int, s syscall.Signal) {
	c.tb.Helper()
	if err := c.nodes[i].cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.tb.Fatalf("signal nats-server: %v", err)
	}
}

// SetPassword gives a user another one, and has all servers read it.
func (c *Nodes) SetPassword(user, password string) {
	c.tb.Helper()
	for i := range c.users {
		if c.users[i].Name == user {
			c.users[i].Password = password
		}
	}
	c.writeAccounts()
	c.Reload()
}

// Reload has all servers read their configuration and certificates again.
func (c *Nodes) Reload() {
	c.tb.Helper()
	for i := range c.nodes {
		c.signal(i, syscall.SIGHUP)
	}
}

// ReloadAndWait is Reload, and returns when all servers have done it. All of them must run.
func (c *Nodes) ReloadAndWait() {
	c.tb.Helper()
	before := make([]int, len(c.nodes))
	for i, s := range c.nodes {
		before[i] = c.reloads(s)
	}
	c.Reload()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.tb.Context()), nodesTimeout)
	defer cancel()
	tick := time.NewTicker(nodesPoll)
	defer tick.Stop()
	for i, s := range c.nodes {
		for c.reloads(s) == before[i] {
			select {
			case <-ctx.Done():
				c.tb.Fatalf("nats-server %s has not read its configuration again", s.name)
			case <-tick.C:
			}
		}
	}
}

// reloads is how often a server has read its configuration again, by its log.
func (c *Nodes) reloads(s *node) int {
	c.tb.Helper()
	text, err := os.ReadFile(c.log(s))
	if err != nil {
		c.tb.Fatal(err)
	}
	return strings.Count(string(text), "Reloaded server configuration")
}

// Options log in as a user, with certificates where servers want them.
func (c *Nodes) Options(user string) []nats.Option {
	o := []nats.Option{nats.UserInfoHandler(func() (string, string) {
		for _, u := range c.users {
			if u.Name == user {
				return u.Name, u.Password
			}
		}
		return user, ""
	}), nats.IgnoreAuthErrorAbort()}
	if c.tls != nil {
		o = append(o, nats.RootCAs(c.tls.CA), nats.ClientCert(c.tls.Cert, c.tls.Key))
	}
	return o
}

// AwaitReady waits until JetStream answers on every server, and all replicas are in step.
func (c *Nodes) AwaitReady() {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.tb.Context()), nodesTimeout)
	defer cancel()
	tick := time.NewTicker(nodesPoll)
	defer tick.Stop()
	for _, s := range c.nodes {
		for {
			err := c.ready(ctx, s)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				c.tb.Fatalf("nats-server %s is not ready: %v", s.name, err)
			case <-tick.C:
			}
		}
	}
}

func (c *Nodes) ready(ctx context.Context, s *node) error {
	scheme, _, _ := strings.Cut(c.URL(), "://")
	nc, err := nats.Connect(fmt.Sprintf("%s://127.0.0.1:%d", scheme, s.port), append(c.Options(Admin), nats.NoReconnect(), nats.Timeout(5*time.Second))...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := js.AccountInfo(ctx); err != nil {
		return err
	}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if info.Cluster == nil || info.Config.Replicas < 2 {
			continue
		}
		if info.Cluster.Leader == "" {
			return fmt.Errorf("stream %s has no leader", info.Config.Name)
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("replica %s of stream %s is behind", r.Name, info.Config.Name)
			}
		}
	}
	return streams.Err()
}

// Leader is the server that leads a stream.
func (c *Nodes) Leader(ctx context.Context, js jetstream.JetStream, stream string) (i int, err error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	if info := s.CachedInfo(); info.Cluster != nil {
		for i, n := range c.nodes {
			if n.name == info.Cluster.Leader {
				return i, nil
			}
		}
	}
	return 0, nil
}

// Refusals are the lines of the servers' logs that say that a user may not do what it tried, each
// once.
func (c *Nodes) Refusals() []string {
	c.tb.Helper()
	found := map[string]bool{}
	for _, s := range c.nodes {
		text, err := os.ReadFile(c.log(s))
		if err != nil {
			c.tb.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, what, ok := strings.Cut(line, "Violation"); ok {
				found[strings.TrimSpace(what)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// serveConfig is the child process: a nats-server until its parent is gone.
func serveConfig(path string) error {
	o, err := server.ProcessConfigFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	s, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("make: %w", err)
	}
	s.ConfigureLogger()
	parent := os.Getppid()
	s.Start()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range tick.C {
		if os.Getppid() != parent {
			return nil
		}
	}
	return nil
}
