// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/test/contend"
)

// closeLimit bounds how long a child takes to give its locks back at its end.
const closeLimit = 10 * time.Second

// childConfig is what a child is started with.
type childConfig struct {
	Name  string
	Redis string // host:port
}

// child is a process with a lock manager of its own, as each replica of the operator has one.
type child struct {
	config   childConfig
	parent   *peer
	client   redis.UniversalClient
	commands *contend.Commands
	registry *prometheus.Registry
	manager  *lockmgr.Manager
	crew     crew

	mu     sync.Mutex
	leases map[string]*lockmgr.Lease // held on behalf of the parent, by ID
}

// childMain is the whole life of a child process, which ends with its stdin.
func childMain(config string) int {
	logging.Disable() // that Redis is away is what tests want
	c := &child{commands: &contend.Commands{}, registry: prometheus.NewRegistry(), leases: map[string]*lockmgr.Lease{}}
	if err := json.Unmarshal([]byte(config), &c.config); err != nil {
		fmt.Fprintln(os.Stderr, "child: config:", err)
		return 1
	}
	client, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{c.config.Redis}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "child: client:", err)
		return 1
	}
	client.AddHook(c.commands)
	c.client = client
	c.manager = lockmgr.New(client, lockmgr.Options{Holder: c.config.Name, Metrics: lockmgr.NewMetrics(c.registry, nil)})
	c.parent = newPeer(os.Stdout, c.methods())

	c.parent.serve(context.Background(), os.Stdin)
	return c.close()
}

func (c *child) close() int {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	for _, l := range c.leases {
		l.Drop(ctx)
	}
	err := errors.Join(c.manager.Close(ctx), c.client.Close())
	if err != nil {
		fmt.Fprintln(os.Stderr, "child: close:", err)
		return 1
	}
	return 0
}

func (c *child) methods() methods {
	return methods{
		"take":     does(c.take),
		"state":    does(c.state),
		"write":    does(c.write),
		"end":      does(c.end),
		"warm":     does(c.warm),
		"contend":  does(c.contend),
		"hold":     does(c.hold),
		"watch":    does(c.watch),
		"work":     does(c.work),
		"prove":    does(c.prove),
		"report":   does(c.report),
		"overhead": does(c.overhead),
	}
}

// takeArgs ask a child for the lock of a run.
type takeArgs struct {
	Run    string
	Waiter string
	Policy policy.RunLock
	// Asked is what the child is told that the status holds.
	Asked object
	// Wait says to wait for a busy lock; else the child asks once.
	Wait bool
}

// taken is what came of it: a lease, or none.
type taken struct {
	LeaseID string
	Fence   int64
	Busy    bool
	Queued  bool // with Busy: it has a place in line
}

func (c *child) take(ctx context.Context, in takeArgs) (taken, error) {
	request := lockmgr.Request{
		RunUID: in.Run, Waiter: in.Waiter, Policy: in.Policy, Floor: in.Asked.Fence, FloorLeaseID: in.Asked.LeaseID,
		Wake: func() {},
	}
	var lease *lockmgr.Lease
	var err error
	if in.Wait {
		lease, err = contend.Acquire(ctx, c.manager, func(context.Context) (lockmgr.Request, error) { return request, nil })
	} else {
		lease, err = c.manager.Acquire(ctx, request)
	}
	if busy, ok := errors.AsType[*lockmgr.BusyError](err); ok {
		return taken{Busy: true, Queued: busy.Queued}, nil
	}
	if err != nil {
		return taken{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[lease.ID()] = lease
	return taken{LeaseID: lease.ID(), Fence: lease.Fence()}, nil
}

func (c *child) lease(id string) (*lockmgr.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.leases[id]
	if !ok {
		return nil, fmt.Errorf("no lease %q", id)
	}
	return l, nil
}

// leaseState is how a lease fares.
type leaseState struct {
	Fence    int64
	Err      string
	Unlocked bool
}

func (c *child) state(_ context.Context, id string) (leaseState, error) {
	l, err := c.lease(id)
	if err != nil {
		return leaseState{}, err
	}
	s := leaseState{Fence: l.Fence(), Unlocked: l.Status().Unlocked}
	if err := l.Err(); err != nil {
		s.Err = err.Error()
	}
	return s, nil
}

// writeArgs tell a child to write under a lease.
type writeArgs struct {
	Run     string
	LeaseID string
	// Asked goes into the history.
	Asked object
	// Blind leaves Lease.Err out, as if the process had been paused between it and the write.
	Blind bool
}

// write writes with a resourceVersion read just now, so that only the fence can be why it is
// refused. Without a verdict the child did not write, since the lease was over.
func (c *child) write(ctx context.Context, in writeArgs) (verdict, error) {
	l, err := c.lease(in.LeaseID)
	if err != nil {
		return "", err
	}
	now, err := c.readRun(ctx, in.Run)
	if err != nil {
		return "", err
	}
	if over := l.Err() != nil; over && !in.Blind {
		return "", nil
	}
	return c.writeRun(ctx, write{Run: in.Run, LeaseID: l.ID(), Fence: l.Fence(), Version: now.Version, Asked: in.Asked})
}

func (c *child) readRun(ctx context.Context, run string) (object, error) {
	var o object
	return o, c.parent.call(ctx, "read", run, &o)
}

func (c *child) writeRun(ctx context.Context, w write) (verdict, error) {
	w.Child = c.config.Name
	var v verdict
	return v, c.parent.call(ctx, "write", w, &v)
}

// endArgs tell a child to end a lease.
type endArgs struct {
	LeaseID string
	Drop    bool
}

func (c *child) end(ctx context.Context, in endArgs) (none, error) {
	l, err := c.lease(in.LeaseID)
	if err != nil {
		return none{}, err
	}
	if in.Drop {
		l.Drop(ctx)
	} else {
		l.Release(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, in.LeaseID)
	return none{}, nil
}
