// Package wakes sends word to the other replicas that a run is to be looked at.
//
// Example: replica a ends a run and frees its slot. The next run of that tenant is driven
// by replica b. Send publishes its name on a channel of Redis; b hears it and makes a pass
// over the run.
//
// Word may get lost: the quota's resync wakes each run that could go on, too. So nothing is
// repeated, nothing waits for it, and what finds no room is dropped.
package wakes

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
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
	queue  chan types.NamespacedName
	clock  clock.Clock
	log    logr.Logger
}

// New makes a channel; hear is called with each run of which another replica sent word. It must not
// block. It also hears what this replica sent.
func New(client redis.UniversalClient, hear func(types.NamespacedName), c clock.Clock, log logr.Logger) *Channel {
	return &Channel{client: client, hear: hear, queue: make(chan types.NamespacedName, waiting), clock: c, log: log}
}

// Send tells all replicas of a run. It never blocks.
func (c *Channel) Send(run types.NamespacedName) {
	select {
	case c.queue <- run:
	default: // the resync wakes it
	}
}

// Start sends and listens until ctx ends.
func (c *Channel) Start(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { c.send(ctx) })
	both.Go(func() {
		for ctx.Err() == nil {
			lockmgr.Listen(ctx, c.client, channel, c.read)
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
		case run := <-c.queue:
			call, cancel := context.WithTimeout(ctx, sendTimeout)
			if err := c.client.Publish(call, channel, run.String()).Err(); err != nil {
				c.log.V(1).Info("Word of a run was not sent: the next resync wakes it", "run", run.String(), "cause", err.Error())
			}
			cancel()
		}
	}
}

// read takes a name from what was published, by whomever.
func (c *Channel) read(text string) {
	namespace, name, ok := strings.Cut(text, "/")
	if ok && namespace != "" && name != "" && len(text) <= longest {
		c.hear(types.NamespacedName{Namespace: namespace, Name: name})
	}
}
