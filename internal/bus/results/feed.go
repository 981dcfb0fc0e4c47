// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// feed takes the results of one partition, from Follow to Leave.
//
//	subscription ──receive──> work ──> handle
//	                  └─────> poison ──> dead letter
//
// receive waits for the handler, which is only to note deliveries down: so little is held between
// the server and the handler. It does not wait for poison: what finds no room in that queue is
// given back, and comes again at a pace of its own.
type feed struct {
	consumer  *Consumer
	partition int
	name      string
	handle    func(context.Context, *Delivery)
	ledger    *ledger
	anew      bool // the consumer on the server is to be made anew first
	failed    int  // subscriptions that could not be made, since the last one that could
	// connection is the one to NATS before the feed gave anything back, or none.
	connection uint64

	work   chan *Delivery
	burial *burial                   // of poison
	check  chan struct{}             // asks for a look at the consumer now
	lastAt atomic.Pointer[time.Time] // of the last message; with its monotonic reading, so that no step of the wall clock counts
}

func newFeed(c *Consumer, partition int, handle func(context.Context, *Delivery)) *feed {
	return &feed{
		consumer: c, partition: partition, name: c.config(partition).Durable, handle: handle, ledger: newLedger(c.returns),
		work: make(chan *Delivery, workQueue), burial: newBurial(), check: make(chan struct{}, 1),
	}
}

// run consumes until ctx ends and then drains.
func (f *feed) run(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { f.dispatch(ctx) })
	for range buriers {
		workers.Go(func() { f.buryPoison(ctx) })
	}
	for ctx.Err() == nil {
		if err := f.consumeOnce(ctx); err != nil && ctx.Err() == nil {
			f.tell(err)
			f.consumer.conn.Wait(ctx, f.consumer.conn.Jittered(rebuildDelay))
		}
	}
	// Pulling has stopped, so that what is given back now goes to another replica and not to
	// this one again.
	f.connection = connectionOf(f.consumer.conn)
	idle, err := f.ledger.drain(f.consumer.conn.Clock.Now())
	workers.Wait()
	f.awaitIdle(idle)
	if err != nil {
		return fmt.Errorf("drain %s: %w", f.name, err)
	}
	return nil
}

// errSubscriptionEnded is why a subscription is to be built anew that the connection has ended.
var errSubscriptionEnded = errors.New("subscription ended")

// tell says why the subscription is to be built anew: at once, and then now and then. While NATS is
// away each partition comes here four times a second.
func (f *feed) tell(cause error) {
	if f.failed%rebuildsPerLine == 0 {
		f.consumer.conn.Log.Info("Subscription is to be built anew", "consumer", f.name, "failed", f.failed, "cause", cause.Error())
	}
	f.failed++
}

func (f *feed) awaitIdle(idle <-chan struct{}) {
	t := f.consumer.conn.Clock.NewTimer(bus.CallTimeout + drainTimeout) // a settlement is bounded by bus.CallTimeout
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C():
	}
}

func (f *feed) dispatch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-f.work:
			if ctx.Err() == nil && f.ledger.isOpen(d) {
				f.handle(ctx, d)
			}
		}
	}
}

// consumeOnce keeps one subscription until ctx ends (nil) or it has to be built anew (why).
func (f *feed) consumeOnce(ctx context.Context) error {
	if err := f.consumer.conn.Usable(ctx); err != nil {
		return err
	}
	atOnce := f.anew || f.failed > 0
	if f.anew {
		if err := f.consumer.forget(ctx, f.partition); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		f.anew = false
	}
	p, err := newPulls(f, pullRequest{
		Batch: min(pullBatch, f.consumer.options.partitionShare()), MaxBytes: pullBytes, Expires: pullExpiry, Heartbeat: pullHeartbeat,
	}, func(m *nats.Msg) { f.receive(ctx, m) })
	if err != nil {
		return err
	}
	defer p.drain()
	if !atOnce {
		if err := f.rest(ctx, p); err != nil {
			return err
		}
	}
	c, err := f.look(ctx, p)
	if err != nil {
		return err
	}
	f.failed = 0
	return f.watch(ctx, c, p)
}

// rest leaves the server to others for a moment: partitions change hands together, and results wait
// for the first pulls. It is over once a pull was refused, because there is no consumer, say.
func (f *feed) rest(ctx context.Context, p *pulls) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.closed:
		return errSubscriptionEnded
	case <-f.check:
	case <-f.consumer.conn.Clock.After(f.consumer.conn.Jittered(lookAfter)):
	}
	return nil
}

// look sees to it that the consumer is there, and that the pulls fit it.
func (f *feed) look(ctx context.Context, p *pulls) (jetstream.Consumer, error) {
	c, err := f.consumer.ensure(ctx, f.partition)
	if err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, errors.Join(err, f.consumer.conn.RepairStreams(ctx))
		}
		return nil, err
	}
	if !c.WasThere || p.wasRefused() {
		select {
		case <-f.check: // that the first one was refused needs no other look
		default:
		}
		p.again()
	}
	f.fit(ctx, p)
	f.touch()
	return c, nil
}

// fit has the pulls bring the largest message that the stream takes, once somebody knows how large
// that is. Until then they bring what is not larger than most.
func (f *feed) fit(ctx context.Context, p *pulls) {
	if p.fits.Load() {
		return
	}
	size, err := f.consumer.largestResult(ctx)
	if err != nil {
		f.consumer.conn.Log.V(1).Info("Nobody knows how large results may be: the server is asked again", "consumer", f.name, "cause", err.Error())
		return
	}
	p.fit(size + pullSlack)
}

func (f *feed) watch(ctx context.Context, c jetstream.Consumer, p *pulls) error {
	ticker := f.consumer.conn.Clock.NewTicker(stallCheck)
	defer ticker.Stop()
	rounds := f.consumer.conn.Clock.NewTicker(strandedCheck)
	defer rounds.Stop()
	var seen suspicion
	var left stranded
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-p.closed:
			return errSubscriptionEnded
		case <-f.check:
			if err = f.gone(ctx, c); err == nil {
				p.retry()
			}
		case <-ticker.C():
			f.fit(ctx, p)
			err = f.stalled(ctx, c, &seen)
		case <-rounds.C():
			err = left.look(ctx, f, c)
		}
		if err != nil {
			return err
		}
	}
}

// gone tells why the consumer cannot be used any more. That nobody answers is no reason: the
// connection is being made again.
func (f *feed) gone(ctx context.Context, c jetstream.Consumer) error {
	ctx, cancel := f.consumer.conn.Bounded(ctx)
	defer cancel()
	_, err := c.Info(ctx)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// stalled tells why the subscription has to be built anew, if nothing came for a while and it was
// suspect the last time too.
func (f *feed) stalled(ctx context.Context, c jetstream.Consumer, seen *suspicion) error {
	if f.consumer.conn.Clock.Since(*f.lastAt.Load()) < stallAfter {
		seen.confirmed(false)
		return nil
	}
	ctx, cancel := f.consumer.conn.Bounded(ctx)
	defer cancel()
	info, err := c.Info(ctx)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return err
	case err != nil:
		return nil
	case seen.confirmed(isStalled(info)):
		return fmt.Errorf("nothing came for %s: %d messages and %d pulls wait", stallAfter, info.NumPending, info.NumWaiting)
	}
	return nil
}

// suspicion asks for the same finding in two checks in a row: between the end of one pull and the
// next, none waits, and a message that has just come is not delivered yet.
type suspicion struct{ before bool }

func (s *suspicion) confirmed(now bool) bool {
	before := s.before
	s.before = now
	return before && now
}

// isStalled: messages wait although there is room, or no pull request waits for what is
// still to come.
func isStalled(info *jetstream.ConsumerInfo) bool {
	room := info.NumAckPending < info.Config.MaxAckPending
	return info.NumPending > 0 && room || info.NumWaiting == 0
}

func (f *feed) tellPull(err error) {
	f.consumer.conn.Log.V(1).Info("Pull failed", "consumer", f.name, "cause", err.Error())
}

// ask has watch look whether the consumer is gone.
func (f *feed) ask() {
	select {
	case f.check <- struct{}{}:
	default:
	}
}

func (f *feed) touch() {
	now := f.consumer.conn.Clock.Now()
	f.lastAt.Store(&now)
}

// receive sorts a message.
func (f *feed) receive(ctx context.Context, m *nats.Msg) {
	f.touch()
	d, err := f.consumer.read(f.ledger, m)
	if d == nil {
		f.consumer.conn.Log.Info("Ignored a message that is not from a stream", "consumer", f.name, "cause", err.Error())
		return
	}
	if f.ledger.admit(d, f.consumer.conn.Clock.Now(), f.measured) != admitted {
		return
	}
	if err != nil {
		f.setAside(ctx, poisoned{delivery: d, cause: err, at: f.consumer.conn.Clock.Now()})
		return
	}
	f.accept(ctx, d)
}

// accept queues a delivery for the handler. While it waits for a place nothing more is pulled. At
// the end the drain gives it back.
func (f *feed) accept(ctx context.Context, d *Delivery) {
	select {
	case f.work <- d:
	case <-ctx.Done():
	}
}

func (f *feed) measured(class string, asked, gap time.Duration) {
	f.consumer.options.Metrics.redeliveryAsked.WithLabelValues(class).Observe(asked.Seconds())
	f.consumer.options.Metrics.redeliveryGap.WithLabelValues(class).Observe(gap.Seconds())
}
