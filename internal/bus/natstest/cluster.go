// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
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
	routePorts, clientPorts := freePorts(tb, clusterSize), freePorts(tb, clusterSize)
	for _, port := range routePorts {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	for i, port := range routePorts {
		c.options = append(c.options, &server.Options{
			ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: clientPorts[i],
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
	for _, s := range c.servers {
		if !s.ReadyForConnections(startTimeout) {
			tb.Fatalf("nats-server is not ready after %s", startTimeout)
		}
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
func freePorts(tb testing.TB, n int) (all []int) {
	tb.Helper()
	for range n {
		port, err := ports.Free()
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, port)
	}
	return all
}
