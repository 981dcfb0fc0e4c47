package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Consume hands results to handle until ctx ends. It has a goroutine and a durable consumer for each of 8 groups of
// partitions; handle is called by all of them concurrently, and one after the other within a group. It should only note the
// delivery down: Settle may come later, from anywhere. Results of one run come from one group.
//
// When ctx has ended, Consume stops pulling, waits for running calls of handle (whose ctx is done), gives back every
// unsettled delivery at once, waits for settlements under way, and returns. Its error says that something could not be given
// back; it is delivered again after AckWait. Everything else that fails is tried again for as long as ctx lasts.
//
// While it lasts, it also watches the streams for a loss of data, see Losses, and for another installation that takes them over: then it
// ends as if ctx had ended, with a *ForeignError.
func (b *Bus) Consume(ctx context.Context, handle func(context.Context, *Delivery)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	gs := make([]*group, groups)
	for i := range gs {
		gs[i] = newGroup(b, i, handle)
	}
	b.groups.Store(&gs)
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var keeper, running sync.WaitGroup
	keeper.Go(func() { b.keepAlive(keeping, gs) })
	keeper.Go(func() {
		if err := b.watchStreams(keeping); err != nil {
			stop(err)
		}
	})
	errs := make([]error, len(gs))
	for i, g := range gs {
		running.Go(func() { errs[i] = g.run(ctx) })
	}
	running.Wait()
	// The keeper ends last: a settlement in the middle of a dead letter must not be redelivered meanwhile.
	stopKeeping()
	keeper.Wait()
	if err := b.flush(context.WithoutCancel(ctx)); err != nil {
		errs = append(errs, err)
	}
	if cause := context.Cause(ctx); isForeign(cause) {
		errs = append(errs, cause)
	}
	return errors.Join(errs...)
}

// Parked is how many results this process gave back that have not come again, by class of the wait. Of each group it remembers some
// thousands; there may be more.
func (b *Bus) Parked() map[string]int {
	parked := map[string]int{}
	for _, class := range classes() {
		parked[class] = 0
	}
	if gs := b.groups.Load(); gs != nil {
		for _, g := range *gs {
			g.ledger.parked(parked)
		}
	}
	return parked
}

// keepAlives is how often per AckWait the server is told that a delivery is still wanted: one may get lost.
const keepAlives = 3

// keepAlive tells the server, several times per AckWait, that the unsettled deliveries are still wanted.
func (b *Bus) keepAlive(ctx context.Context, gs []*group) {
	ticker := b.clock.NewTicker(b.config.ResultAckWait / keepAlives)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			for _, g := range gs {
				if err := g.ledger.keepAlive(b.clock.Now()); err != nil {
					b.log.V(1).Info("Deliveries could not be kept", "consumer", g.name, "cause", err.Error())
				}
			}
		}
	}
}

// flush waits until the NAKs of the drain are with the server: the process may end right after.
func (b *Bus) flush(ctx context.Context) error {
	if !b.connected() {
		return nil // the drain has reported what it could not send
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush after drain: %w", err)
	}
	return nil
}

func (b *Bus) resultConsumerConfig(number int) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable:       fmt.Sprintf("%s-results-%d", b.names.Prefix, number),
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       b.config.ResultAckWait,
		MaxDeliver:    -1, // the cap is the operator's: contention must never make a healthy result a dead letter
		MaxAckPending: b.config.groupShare(),
		// No BackOff: the server adds it to the delay of a NAK.
	}
	for p := number * partitionsPerGroup; p < (number+1)*partitionsPerGroup; p++ {
		c.FilterSubjects = append(c.FilterSubjects, b.names.PartitionResults(p))
	}
	return c
}
