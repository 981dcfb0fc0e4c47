package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// buriers is how many messages of a group are judged and put aside at the same time.
	buriers = 4
	// poisonQueue and poisonBytes bound the messages of a group that wait for that: they are held whole.
	poisonQueue = 256
	poisonBytes = 2 << 20
	// poisonCost is the least time between two messages of a group that found no room there and come again; poisonWait bounds the
	// wait of one.
	poisonCost = 2 * time.Millisecond
	poisonWait = time.Minute
)

// errNoBurial gives a message back that has to be put aside, and finds no room among those that wait for it.
var errNoBurial = errors.New("too many messages wait to be put aside")

// poisoned is a message that must not reach the handler.
type poisoned struct {
	delivery *Delivery
	cause    error
	at       time.Time // when it came
}

// burial bounds the messages that wait to be put aside, and spreads those that find no room: whoever may publish results can send as
// many of them as he wants.
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
	_ = p.delivery.Settle(ctx, &RetryError{Class: ClassInboxFull, Delay: g.bus.jittered(defaultNakDelay) + wait, Err: errNoBurial})
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
		g.bus.log.V(1).Info("Poison message comes again", "consumer", g.name, "cause", err.Error())
	}
	if _, permanent := errors.AsType[*PermanentError](cause); permanent && !p.delivery.Buried() {
		g.bus.wait(ctx, g.bus.jittered(publishRetryDelay)) // nobody stores dead letters now: no use in trying with each
	}
}
