// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Cluster is three servers with JetStream, of which any one may be away.
type Cluster struct {
	tb      testing.TB
	stores  string // all stores are in it, so that they outlive their servers
	options []*server.Options
	servers []*server.Server
}

const clusterSize = 3

// StartCluster runs a cluster until the test ends. It is ready when it has a leader.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, stores: tb.TempDir()}
	var routes []*url.URL
	ports := freePorts(tb, clusterSize)
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	for i, port := range ports {
		c.options = append(c.options, &server.Options{
			ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: c.newStore(), NoLog: true, NoSigs: true,
			Cluster: server.ClusterOpts{Name: "natstest", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		c.servers = append(c.servers, c.begin(i))
	}
	tb.Cleanup(func() {
		for i := range c.servers {
			c.Stop(i)
		}
	})
	for i, s := range c.servers {
		if !s.ReadyForConnections(startTimeout) {
			tb.Fatalf("nats-server is not ready after %s", startTimeout)
		}
		c.options[i].Port = addressPort(tb, s)
	}
	c.await("the cluster has a leader", func() bool {
		for _, s := range c.servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == clusterSize {
				return true
			}
		}
		return false
	})
	return c
}

// begin starts a server; it need not be ready.
func (c *Cluster) begin(i int) *server.Server {
	c.tb.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		c.tb.Fatalf("new nats-server: %v", err)
	}
	s.Start()
	return s
}

// Start starts a server that was stopped, on the same port. What needs others may have to
// wait for them.
func (c *Cluster) Start(i int) {
	c.tb.Helper()
	c.servers[i] = c.begin(i)
	if !c.servers[i].ReadyForConnections(startTimeout) {
		c.tb.Fatalf("nats-server is not ready after %s", startTimeout)
	}
}

// Stop stops a server and waits for it.
func (c *Cluster) Stop(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

// CopyStore is a copy of the store of a server that is stopped.
func (c *Cluster) CopyStore(i int) (dir string) {
	c.tb.Helper()
	dir = c.newStore()
	if err := os.CopyFS(dir, os.DirFS(c.options[i].StoreDir)); err != nil {
		c.tb.Fatalf("copy the store: %v", err)
	}
	return dir
}

// PutBack gives a server that is stopped a store that CopyStore gave: all that came after
// it is lost.
func (c *Cluster) PutBack(i int, dir string) { c.options[i].StoreDir = dir }

func (c *Cluster) newStore() string {
	c.tb.Helper()
	dir, err := os.MkdirTemp(c.stores, "store-")
	if err != nil {
		c.tb.Fatal(err)
	}
	return dir
}

// URL names all servers, with commas between.
func (c *Cluster) URL() string {
	urls := make([]string, 0, len(c.servers))
	for _, s := range c.servers {
		urls = append(urls, s.ClientURL())
	}
	return strings.Join(urls, ",")
}

func (c *Cluster) await(what string, done func() bool) {
	c.tb.Helper()
	err := wait.PollUntilContextTimeout(c.tb.Context(), 10*time.Millisecond, 2*startTimeout, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		c.tb.Fatalf("%s: %v", what, err)
	}
}

// freePorts are ports that nobody listens on. The servers have to know each other's
// before they start.
func freePorts(tb testing.TB, n int) []int {
	tb.Helper()
	var ports []int
	for range n {
		var lc net.ListenConfig
		l, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		a, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			tb.Fatalf("listens on %v", l.Addr())
		}
		ports = append(ports, a.Port)
	}
	return ports
}
