// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// Consume hands the results of the partitions that are followed to handle, until ctx ends: see
// Follow. Each partition has a goroutine and a durable consumer; handle is called by all of them
// concurrently, and one after the other within a partition. It should only note the delivery down:
// Settle may come later, from anywhere. Results of one run come from one partition.
//
// When ctx has ended, Consume stops pulling, waits for running calls of handle (whose ctx is done),
// gives back every unsettled delivery, of a backlog 16 MiB a second, waits for settlements under
// way, and returns. Its error says that something could not be given back; it is delivered again
// after AckWait. Everything else that fails is tried again for as long as ctx lasts.
//
// While it lasts, it also watches the streams for a loss of data, see Losses, and for another
// installation that takes them over: then it ends as if ctx had ended, with a *ForeignError.
func (c *Consumer) Consume(ctx context.Context, handle func(context.Context, *Delivery)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { c.keepAlive(keeping) })
	keeper.Go(func() {
		if err := c.conn.WatchStreams(keeping); err != nil {
			stop(err)
		}
	})
	ended := c.following.run(ctx, func(partition int) *feed { return newFeed(c, partition, handle) })
	// The keeper ends last: a settlement in the middle of a dead letter must not be
	// redelivered meanwhile.
	stopKeeping()
	keeper.Wait()
	// The NAKs of the drain are to be with the server: the process may end right after.
	err := c.gaveBack(context.WithoutCancel(ctx), ended)
	if cause := context.Cause(ctx); bus.IsForeign(cause) {
		err = errors.Join(err, cause)
	}
	return err
}

// Parked is how many results this process gave back that have not come again, by class of the wait.
// Of each partition it remembers some hundreds; there may be more.
func (c *Consumer) Parked() map[string]int {
	parked := map[string]int{}
	for _, class := range classes() {
		parked[class] = 0
	}
	c.following.each(func(f *feed) { f.ledger.parked(parked) })
	return parked
}

const (
	// keepAlives is how often per AckWait the server is told that a delivery is still wanted: one
	// may get lost.
	keepAlives = 3
	// keepAgain is when it is told again after it could not be, as during an outage: the next time
	// might be when AckWait is over, and all that is held would come again.
	keepAgain = time.Second
)

// keepAlive tells the server, several times per AckWait, that the unsettled deliveries
// are still wanted.
func (c *Consumer) keepAlive(ctx context.Context) {
	pause := c.options.AckWait / keepAlives
	next := c.conn.Clock.NewTimer(pause)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C():
			if c.keepAll() {
				next.Reset(pause)
			} else {
				next.Reset(min(pause, keepAgain))
			}
		}
	}
}

// keepAll tells the server of all that is held; it says whether it could.
func (c *Consumer) keepAll() (told bool) {
	told = true
	c.following.each(func(f *feed) {
		if err := f.ledger.keepAlive(c.conn.Clock.Now()); err != nil {
			told = false
			c.conn.Log.V(1).Info("Deliveries could not be kept", "consumer", f.name, "cause", err.Error())
		}
	})
	return told
}
