// SPDX-License-Identifier: Apache-2.0

// Package wakes sends word to the other replicas that a run is to be looked at.
//
// Example: replica a ends a run and frees its slot. The next run of that tenant is driven
// by replica b. Send publishes its name on a channel of Redis; b hears it and makes a pass
// over the run.
//
// Word may get lost: the quota's resync wakes each run that could go on, too. So nothing is
// repeated, nothing waits for it, and what finds no room is dropped. Each namespace has a share of
// the room, so one that sends more than Redis takes does not cost the others their word.
package wakes

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// channel is among those that the operator's account may use for run locks.
	channel = "syncopate:locks:wakes"
	// waiting bounds the names that wait to be sent.
	waiting = 1024
	// sendTimeout bounds one sending.
	sendTimeout = time.Second
	// pause is the wait before the channel is listened to again.
	pause = time.Second
	// longest is that of a name with its namespace: 63 and 253, and what separates them.
	longest = 63 + 1 + 253
)

// Channel sends word of runs, and hears that of others. Safe for concurrent use.
type Channel struct {
	client redis.UniversalClient
	hear   func(types.NamespacedName)
	clock  clock.Clock
	log    logr.Logger

	mu    sync.Mutex
	queue []types.NamespacedName // each run once
	room  *share.Room
	more  chan struct{}
}

// New makes a channel; hear is called with each run of which another replica sent word. It must not
// block. It also hears what this replica sent.
func New(client redis.UniversalClient, hear func(types.NamespacedName), c clock.Clock, log logr.Logger) *Channel {
	return &Channel{client: client, hear: hear, clock: c, log: log, room: share.NewRoom(waiting), more: make(chan struct{}, 1)}
}

// Send tells all replicas of a run. It never blocks.
func (c *Channel) Send(run types.NamespacedName) {
	c.mu.Lock()
	// A run that waits already has its place, and finds no other. Else the resync wakes it.
	if !slices.Contains(c.queue, run) && c.room.Take(run.Namespace, run.String(), 1) {
		c.queue = append(c.queue, run)
	}
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// next takes out the run that waited longest.
func (c *Channel) next() (run types.NamespacedName, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return run, false
	}
	run, c.queue = c.queue[0], c.queue[1:]
	c.room.Free(run.Namespace, run.String(), 1)
	return run, true
}

// Start sends and listens until ctx ends.
func (c *Channel) Start(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { c.send(ctx) })
	both.Go(func() {
		for ctx.Err() == nil {
			lockmgr.Listen(ctx, c.client, channel, func() {}, c.read)
			select {
			case <-ctx.Done():
			case <-c.clock.After(pause):
			}
		}
	})
	both.Wait()
	return nil
}

func (c *Channel) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.more:
		}
		for run, ok := c.next(); ok && ctx.Err() == nil; run, ok = c.next() {
			c.publish(ctx, run)
		}
	}
}

func (c *Channel) publish(ctx context.Context, run types.NamespacedName) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if err := c.client.Publish(ctx, channel, run.String()).Err(); err != nil {
		c.log.V(1).Info("Word of a run was not sent: the next resync wakes it", "run", run.String(), "cause", err.Error())
	}
}

// read takes a name from what was published, by whomever.
func (c *Channel) read(text string) {
	namespace, name, ok := strings.Cut(text, "/")
	if ok && namespace != "" && name != "" && len(text) <= longest {
		c.hear(types.NamespacedName{Namespace: namespace, Name: name})
	}
}
