// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// Follow has Consume take the results of partitions from now on. It does not wait. A partition that
// is followed already stays as it is.
//
// A partition has one durable consumer on the server. Several processes may follow it; they share
// its results then.
func (c *Consumer) Follow(partitions ...int) { c.following.follow(partitions, false) }

// TakeOver is Follow, where the process that followed these partitions before is gone. What it had
// not settled is delivered at once, and not after AckWait; so is what was given back with a delay.
//
// It makes the consumer on the server anew. A process that is wrongly taken for gone loses nothing
// by that: what it acknowledges is in status.
func (c *Consumer) TakeOver(partitions ...int) { c.following.follow(partitions, true) }

// Leave ends what Follow began. When it returns nil, the server has every unsettled result of these
// partitions back and may deliver it to another process: at once, or, of a backlog, at the pace of
// returns. Settlements that were under way have ended.
//
// An error says what could not be given back, or that ctx ended first: those results are delivered
// again after AckWait at the latest.
func (c *Consumer) Leave(ctx context.Context, partitions ...int) error {
	var ending []*running
	c.following.mu.Lock()
	for _, p := range partitions {
		delete(c.following.wanted, p)
		if r := c.following.feeds[p]; r != nil {
			r.stop()
			ending = append(ending, r)
		}
	}
	c.following.mu.Unlock()
	var ended []*running
	var errs []error
	for _, r := range ending {
		select {
		case <-r.done:
			ended = append(ended, r)
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("give back the results of partition %d: %w", r.partition, context.Cause(ctx)))
		}
	}
	if len(ended) > 0 {
		errs = append(errs, c.gaveBack(ctx, ended))
	}
	return errors.Join(errs...)
}

// gaveBack waits until what feeds gave back that have ended is with the server. It says what is
// not, or may not be: a connection that ended meanwhile took with it what was not sent yet.
func (c *Consumer) gaveBack(ctx context.Context, ended []*running) error {
	flushed := c.conn.Flush(ctx)
	now := connectionOf(c.conn)
	var lost error
	var errs []error
	for _, r := range ended {
		returned, unsent := r.ledger.gaveBack()
		if errs = append(errs, r.err); unsent != nil {
			errs = append(errs, fmt.Errorf("give back results of %s: %w", r.name, unsent))
		}
		switch {
		case !returned:
		case flushed != nil:
			lost = flushed
		case r.connection == none, r.connection != now:
			lost = bus.ErrUnreachable
		}
	}
	if lost != nil {
		errs = append(errs, fmt.Errorf("flush what was given back: %w", lost))
	}
	return errors.Join(errs...)
}

// none is no connection.
const none = 0

// connectionOf tells the connections to NATS apart. Without one it is none: who makes one holds the
// lock of the library, which is not waited for.
func connectionOf(c *bus.Conn) uint64 {
	if !c.Reachable() {
		return none
	}
	return c.NATS.Stats().Reconnects + 1
}

// following is which partitions a Consumer is to take results of, and who does.
type following struct {
	mu     sync.Mutex
	wanted map[int]bool
	clock  clock.PassiveClock
	// anew are those whose consumer on the server is to be made anew by the next feed, and since
	// when. If that one ends before it could, say because NATS was away, the one after it does.
	anew map[int]time.Time
	// feeds are those that run, and those that have not ended yet.
	feeds map[int]*running
	// start makes a feed; nil while Consume does not run.
	start func(partition int) *running
}

// running is a feed from its start until it has given back everything.
type running struct {
	*feed
	stop context.CancelFunc
	done chan struct{}
	err  error // once done
	// since is when its consumer was to be made anew; zero: it found that out by itself.
	since time.Time
}

// anewCounts is for how long a consumer is to be made anew: after that all that its process had is
// delivered by itself, and another one may have followed the partition and left it in good order.
const anewCounts = 2 * time.Minute

// takeAnew says whether the consumer of a partition is to be made anew, and since when, and forgets
// it. mu is held.
func (f *following) takeAnew(partition int) (anew bool, since time.Time) {
	since, anew = f.anew[partition]
	delete(f.anew, partition)
	return anew && f.clock.Since(since) < anewCounts, since
}

func (f *following) follow(partitions []int, anew bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range partitions {
		if anew && (f.feeds[p] == nil || !f.wanted[p]) { // none follows it: one that was left is about to end
			f.anew[p] = f.clock.Now()
		}
		f.wanted[p] = true
		f.begin(p)
	}
}

// begin starts the feed of a partition, unless there is one. One that is about to end is followed
// by another when it has. mu is held.
func (f *following) begin(partition int) {
	if f.start != nil && f.feeds[partition] == nil {
		f.feeds[partition] = f.start(partition)
	}
}

// run follows what is wanted until ctx ends and all has been given back. It returns the feeds that
// ended then.
func (f *following) run(ctx context.Context, newFeed func(partition int) *feed) []*running {
	var all sync.WaitGroup
	var last []*running // mu is held
	f.mu.Lock()
	f.start = func(partition int) *running {
		feeding, stop := context.WithCancel(ctx)
		r := &running{feed: newFeed(partition), stop: stop, done: make(chan struct{})}
		r.anew, r.since = f.takeAnew(partition)
		all.Go(func() {
			defer stop()
			r.err = r.feed.run(feeding)
			close(r.done)
			if f.ended(r); ctx.Err() != nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				last = append(last, r)
			}
		})
		return r
	}
	for p := range f.wanted {
		f.begin(p)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.start = nil
	f.mu.Unlock()
	all.Wait()
	return last
}

// ended takes out a feed that has ended, and starts the next one if the partition is wanted again.
func (f *following) ended(r *running) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.feeds, r.partition)
	if r.anew {
		f.anew[r.partition] = r.since
	}
	if f.wanted[r.partition] {
		f.begin(r.partition)
	}
}

// each calls back with each feed that runs. A call that waits for NATS keeps nobody from following.
func (f *following) each(call func(*feed)) {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.feeds))
	f.mu.Unlock()
	for _, r := range all {
		call(r.feed)
	}
}
