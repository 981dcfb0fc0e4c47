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

// group consumes one eighth of the partitions.
//
//	subscription ──receive──> work ──> handle
//	                  └─────> poison ──> dead letter
//
// receive waits for the handler, which is only to note deliveries down: so little is held between
// the server and the handler. It does not wait for poison: what finds no room in that queue is
// given back, and comes again at a pace of its own.
type group struct {
	consumer *Consumer
	number   int
	name     string
	handle   func(context.Context, *Delivery)
	ledger   *ledger

	work   chan *Delivery
	burial *burial                   // of poison
	check  chan struct{}             // asks for a look at the consumer now
	lastAt atomic.Pointer[time.Time] // of the last message; with its monotonic reading, so that no step of the wall clock counts
}

func newGroup(c *Consumer, number int, handle func(context.Context, *Delivery)) *group {
	return &group{
		consumer: c, number: number, name: c.config(number).Durable, handle: handle, ledger: newLedger(),
		work: make(chan *Delivery, workQueue), burial: newBurial(), check: make(chan struct{}, 1),
	}
}

// run consumes until ctx ends and then drains.
func (g *group) run(ctx context.Context) error {
	var workers sync.WaitGroup
	workers.Go(func() { g.dispatch(ctx) })
	for range buriers {
		workers.Go(func() { g.buryPoison(ctx) })
	}
	for ctx.Err() == nil {
		if err := g.consumeOnce(ctx); err != nil && ctx.Err() == nil {
			g.consumer.conn.Log.Info("Subscription is to be built anew", "consumer", g.name, "cause", err.Error())
			g.consumer.conn.Wait(ctx, g.consumer.conn.Jittered(rebuildDelay))
		}
	}
	// Pulling has stopped, so that what is given back now goes to another replica and not to
	// this one again.
	idle, err := g.ledger.drain()
	workers.Wait()
	g.awaitIdle(idle)
	if err != nil {
		return fmt.Errorf("drain %s: %w", g.name, err)
	}
	return nil
}

func (g *group) awaitIdle(idle <-chan struct{}) {
	t := g.consumer.conn.Clock.NewTimer(bus.CallTimeout + drainTimeout) // a settlement is bounded by bus.CallTimeout
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C():
	}
}

func (g *group) dispatch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-g.work:
			if ctx.Err() == nil && g.ledger.isOpen(d) {
				g.handle(ctx, d)
			}
		}
	}
}

// consumeOnce keeps one subscription until ctx ends (nil) or it has to be built anew (why).
func (g *group) consumeOnce(ctx context.Context) error {
	if err := g.consumer.conn.Usable(ctx); err != nil {
		return err
	}
	c, err := g.consumer.ensure(ctx, g.number)
	if err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return errors.Join(err, g.consumer.conn.RepairStreams(ctx))
		}
		return err
	}
	size, err := g.consumer.largestResult(ctx)
	if err != nil {
		return err
	}
	g.touch()
	sub, err := c.Consume(func(m jetstream.Msg) { g.receive(ctx, m) },
		jetstream.PullMaxMessagesWithBytesLimit(min(pullBatch, g.consumer.options.groupShare()), max(pullBytes, size+pullSlack)),
		// The library's defaults stall for 30 s at a change of leader.
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { g.onError(err) }))
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	err = g.watch(ctx, c, sub)
	g.unsubscribe(sub)
	return err
}

// unsubscribe waits until the last message that was on its way has been received, or is
// never to come.
func (g *group) unsubscribe(sub jetstream.ConsumeContext) {
	done := sub.Closed()
	sub.Drain()
	t := g.consumer.conn.Clock.NewTimer(drainTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C():
	}
}

func (g *group) watch(ctx context.Context, c jetstream.Consumer, sub jetstream.ConsumeContext) error {
	ticker := g.consumer.conn.Clock.NewTicker(stallCheck)
	defer ticker.Stop()
	closed := sub.Closed()
	var seen suspicion
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-closed:
			return errors.New("subscription ended")
		case <-g.check:
			if err := g.gone(ctx, c); err != nil {
				return err
			}
		case <-ticker.C():
			if err := g.stalled(ctx, c, &seen); err != nil {
				return err
			}
		}
	}
}

// gone tells why the consumer cannot be used any more. That nobody answers is no reason: the
// connection is being made again.
func (g *group) gone(ctx context.Context, c jetstream.Consumer) error {
	ctx, cancel := g.consumer.conn.Bounded(ctx)
	defer cancel()
	_, err := c.Info(ctx)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// stalled tells why the subscription has to be built anew, if nothing came for a while and it was
// suspect the last time too.
func (g *group) stalled(ctx context.Context, c jetstream.Consumer, seen *suspicion) error {
	if g.consumer.conn.Clock.Since(*g.lastAt.Load()) < stallAfter {
		seen.confirmed(false)
		return nil
	}
	ctx, cancel := g.consumer.conn.Bounded(ctx)
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

func (g *group) onError(err error) {
	g.consumer.conn.Log.V(1).Info("Pull failed", "consumer", g.name, "cause", err.Error())
	if !errors.Is(err, nats.ErrNoResponders) {
		return
	}
	select { // nobody serves this consumer: it may be gone
	case g.check <- struct{}{}:
	default:
	}
}

func (g *group) touch() {
	now := g.consumer.conn.Clock.Now()
	g.lastAt.Store(&now)
}

// receive sorts a message.
func (g *group) receive(ctx context.Context, m jetstream.Msg) {
	g.touch()
	d, err := g.consumer.read(g.ledger, m)
	if d == nil {
		g.consumer.conn.Log.Info("Ignored a message that is not from a stream", "consumer", g.name, "cause", err.Error())
		return
	}
	if g.ledger.admit(d, g.consumer.conn.Clock.Now(), g.measured) != admitted {
		return
	}
	if err != nil {
		g.setAside(ctx, poisoned{delivery: d, cause: err, at: g.consumer.conn.Clock.Now()})
		return
	}
	g.accept(ctx, d)
}

// accept queues a delivery for the handler. While it waits for a place nothing more is pulled. At
// the end the drain gives it back.
func (g *group) accept(ctx context.Context, d *Delivery) {
	select {
	case g.work <- d:
	case <-ctx.Done():
	}
}

func (g *group) measured(class string, asked, gap time.Duration) {
	g.consumer.options.Metrics.redeliveryAsked.WithLabelValues(class).Observe(asked.Seconds())
	g.consumer.options.Metrics.redeliveryGap.WithLabelValues(class).Observe(gap.Seconds())
}
