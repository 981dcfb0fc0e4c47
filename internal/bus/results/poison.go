package results

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// buriers is how many messages of a group are judged and put aside at the same time.
	buriers = 4
	// poisonQueue and poisonBytes bound the messages of a group that wait for that: they
	// are held whole.
	poisonQueue = 256
	poisonBytes = 2 << 20
	// poisonCost is the least time between two messages of a group that found no room there and
	// come again; poisonWait bounds the wait of one.
	poisonCost = 2 * time.Millisecond
	poisonWait = time.Minute
)

// errNoBurial gives a message back that has to be put aside, and finds no room among those that
// wait for it.
var errNoBurial = errors.New("too many messages wait to be put aside")

// maxPoisonTries bounds the deliveries of a message that cannot be judged because there are no
// usable keys to judge it by.
const maxPoisonTries = 3

// poisoned is a message that must not reach the handler.
type poisoned struct {
	delivery *Delivery
	cause    error
	at       time.Time // when it came
}

// burial bounds the messages that wait to be put aside, and spreads those that find no room:
// whoever may publish results can send as many of them as he wants.
type burial struct {
	queue chan poisoned

	mu    sync.Mutex
	bytes int
	pace  *share.Pace
}

func newBurial() *burial {
	return &burial{queue: make(chan poisoned, poisonQueue), pace: share.NewPace(poisonWait)}
}

// add queues a message, or says after which time it may come again.
func (b *burial) add(p poisoned) (queued bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == 0 || b.bytes+p.delivery.Size <= poisonBytes {
		select {
		case b.queue <- p:
			b.bytes += p.delivery.Size
			return true, 0
		default:
		}
	}
	return false, b.pace.Wait("", poisonCost, p.at)
}

func (b *burial) done(p poisoned) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= p.delivery.Size
}

// setAside queues a message to be put aside, or gives it back.
func (g *group) setAside(ctx context.Context, p poisoned) {
	queued, wait := g.burial.add(p)
	if queued {
		return
	}
	// A NAK; if it is lost, AckWait does the same.
	_ = p.delivery.Settle(ctx, &bus.RetryError{Class: bus.ClassInboxFull, Delay: g.consumer.conn.Jittered(defaultNakDelay) + wait, Err: errNoBurial})
}

// buryPoison puts messages aside until ctx ends; then the drain gives back what is left.
func (g *group) buryPoison(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-g.burial.queue:
			g.bury(ctx, p)
			g.burial.done(p)
		}
	}
}

func (g *group) bury(ctx context.Context, p poisoned) {
	cause := g.secondLook(ctx, p)
	if ctx.Err() != nil {
		return
	}
	if cause == nil {
		g.accept(ctx, p.delivery)
		return
	}
	if err := p.delivery.Settle(ctx, cause); err != nil {
		g.consumer.conn.Log.V(1).Info("Poison message comes again", "consumer", g.name, "cause", err.Error())
	}
	if _, permanent := errors.AsType[*PermanentError](cause); permanent && !p.delivery.Buried() {
		g.consumer.conn.Wait(ctx, g.consumer.conn.Jittered(retryDelay)) // nobody stores dead letters now: no use in trying with each
	}
}

// secondLook gives a message whose token was made by no key at hand another chance: nil says that
// it is authentic after all. While the keys cannot be read it stays, and no try counts. Without
// usable keys a few tries are all that it gets: forged messages would fill the group for as long as
// nobody repairs the keys.
func (g *group) secondLook(ctx context.Context, p poisoned) error {
	if !errors.Is(p.cause, ErrBadToken) {
		return p.cause
	}
	d := p.delivery
	ok, err := g.consumer.keys.Authentic(ctx, d.ID, d.original.token(), p.at)
	switch {
	case ok:
		d.decode()
		return nil
	case err == nil:
		return p.cause
	case !errors.Is(err, bus.ErrConfig):
		return &bus.RetryError{
			Class: bus.ClassStoreUnavailable, Delay: g.consumer.conn.Jittered(defaultNakDelay),
			Err: fmt.Errorf("%w by the keys at hand, and others cannot be read: %w", ErrBadToken, err),
		}
	case d.Failures+1 < maxPoisonTries:
		return fmt.Errorf("%w by the keys at hand: %w", ErrBadToken, err)
	default:
		return p.cause
	}
}
