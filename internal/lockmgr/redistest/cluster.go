// SPDX-License-Identifier: Apache-2.0

package redistest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	hashSlots = 16384
	shards    = 3
)

// Cluster is a Redis Cluster of three shards with a replica each: the masters first.
type Cluster struct{ set }

// StartCluster runs it until the test ends.
func StartCluster(t testing.TB, host Host, users ...Login) *Cluster {
	t.Helper()
	c := &Cluster{set{t: t, host: host, users: users}}
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.Itoa(downAfter), "--cluster-require-full-coverage", "no"}
	if host.TLS != nil {
		args = append(args, "--tls-cluster", "yes")
	}
	bus := make([]int, 2*shards) // where no client gets a port of its own, as 10,000 above the other one may be
	for i := range bus {
		bus[i] = FreePort(t)
		c.startNodes(1, append(slices.Clone(args), "--cluster-port", strconv.Itoa(bus[i]))...)
	}
	ctx := context.WithoutCancel(t.Context())
	do := func(n *Server, command ...any) {
		t.Helper()
		if err := n.admin().Do(ctx, command...).Err(); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
	for i, n := range c.Nodes[:shards] {
		do(n, "CLUSTER", "ADDSLOTSRANGE", i*hashSlots/shards, (i+1)*hashSlots/shards-1)
		do(n, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	for _, n := range c.Nodes[1:] {
		do(n, "CLUSTER", "MEET", "127.0.0.1", c.Nodes[0].port, bus[0])
	}
	c.await("the nodes know each other", func(ctx context.Context) bool {
		for _, n := range c.Nodes {
			if strings.Count(n.admin().ClusterNodes(ctx).Val(), "connected") != 2*shards {
				return false
			}
		}
		return true
	})
	for i, n := range c.Nodes[shards:] {
		do(n, "CLUSTER", "REPLICATE", c.id(c.Nodes[i]))
	}
	c.AwaitWhole()
	return c
}

func (c *Cluster) id(n *Server) string {
	c.t.Helper()
	id, err := n.admin().Do(context.WithoutCancel(c.t.Context()), "CLUSTER", "MYID").Text()
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// AwaitWhole waits until all nodes that run say that all slots are served.
func (c *Cluster) AwaitWhole() {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.tellNodes()
		}
	}()
	c.await("the cluster is whole", func(ctx context.Context) bool {
		for _, n := range c.running() {
			info := n.admin().ClusterInfo(ctx).Val()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:16384") {
				return false
			}
		}
		return true
	})
}

// tellNodes shows what each node that runs knows of the cluster.
func (c *Cluster) tellNodes() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), 10*time.Second)
	defer cancel()
	for _, n := range c.running() {
		nodes, err := n.admin().ClusterNodes(ctx).Result()
		c.t.Logf("node %s (%v):\n%s%s", n.Addr(), err, nodes, n.admin().ClusterInfo(ctx).Val())
	}
}

// Masters are the nodes that serve slots now.
func (c *Cluster) Masters() []*Server {
	c.t.Helper()
	ctx := context.WithoutCancel(c.t.Context())
	var masters []*Server
	for _, n := range c.running() {
		if strings.Contains(n.admin().Info(ctx, "replication").Val(), "role:master") {
			masters = append(masters, n)
		}
	}
	return masters
}

// MoveSlot gives the slot of a key to another master, with the keys in it, and waits until all
// nodes know. A replica that still takes the old owner for right, while that owner's epoch grows by
// the slot of another move, has the new owner give the slot up (Redis 7.0): nobody serves it then.
func (c *Cluster) MoveSlot(key string) {
	c.t.Helper()
	ctx := context.WithoutCancel(c.t.Context())
	slot, err := c.Nodes[0].admin().ClusterKeySlot(ctx, key).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	// A master knows the keys of its own slots; any other says where they are.
	masters := c.Masters()
	i := slices.IndexFunc(masters, func(n *Server) bool { return n.admin().Exists(ctx, key).Err() == nil })
	if i < 0 || len(masters) < 2 {
		c.t.Fatalf("none of %d masters has the slot of %s", len(masters), key)
	}
	from, to := masters[i], masters[(i+1)%len(masters)]
	run := func(n *Server, command ...any) {
		c.t.Helper()
		if err := n.admin().Do(ctx, command...).Err(); err != nil {
			c.t.Fatalf("%v: %v", command, err)
		}
	}
	owner := c.id(to)
	run(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.id(from))
	run(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", owner)
	keys, err := from.admin().ClusterGetKeysInSlot(ctx, int(slot), 1000).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, k := range keys {
		run(from, "MIGRATE", "127.0.0.1", to.port, k, 0, 1000, "REPLACE", "AUTH2", Admin, adminPassword)
	}
	for _, n := range []*Server{to, from} { // the others hear it from the new owner
		run(n, "CLUSTER", "SETSLOT", slot, "NODE", owner)
	}
	c.await("all nodes know the slot's new owner", func(ctx context.Context) bool {
		return !slices.ContainsFunc(c.running(), func(n *Server) bool { return ownerOf(n.admin().ClusterShards(ctx).Val(), slot) != owner })
	})
}

// ownerOf is the id of the master of a slot; "": nobody is known.
func ownerOf(all []redis.ClusterShard, slot int64) string {
	for _, s := range all {
		if !slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End }) {
			continue
		}
		if i := slices.IndexFunc(s.Nodes, func(n redis.Node) bool { return n.Role == "master" }); i >= 0 {
			return s.Nodes[i].ID
		}
	}
	return ""
}
