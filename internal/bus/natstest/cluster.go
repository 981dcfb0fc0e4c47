package natstest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Cluster is three servers with JetStream, of which any one may be away.
type Cluster struct {
	tb      testing.TB
	servers []*server.Server
}

const clusterSize = 3

// StartCluster runs a cluster until the test ends. It is ready when it has a leader.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	var routes []*url.URL
	ports := freePorts(tb, clusterSize)
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: tb.TempDir(), NoLog: true, NoSigs: true,
			Cluster: server.ClusterOpts{Name: "natstest", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		if err != nil {
			tb.Fatalf("new nats-server: %v", err)
		}
		s.Start()
		c.servers = append(c.servers, s)
	}
	tb.Cleanup(func() {
		for _, s := range c.servers {
			s.Shutdown()
			s.WaitForShutdown()
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

// freePorts are ports that nobody listens on. The servers have to know each other's before they start.
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
