// SPDX-License-Identifier: Apache-2.0

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
	// buriers is how many messages of a partition are judged and put aside at the same time.
	buriers = 2
	// poisonQueue bounds the messages of a partition that wait for that. Of each, only what names
	// it is held, and its token.
	poisonQueue = 64
	// poisonCost is the least time between two messages of a partition that found no room there and
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

	mu   sync.Mutex
	pace *share.Pace
}

func newBurial() *burial {
	return &burial{queue: make(chan poisoned, poisonQueue), pace: share.NewPace(poisonWait)}
}

// add queues a message, or says after which time it may come again.
func (b *burial) add(p poisoned) (queued bool, wait time.Duration) {
	select {
	case b.queue <- p:
		return true, 0
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return false, b.pace.Wait("", poisonCost, p.at)
}

// setAside queues a message to be put aside, or gives it back.
func (f *feed) setAside(ctx context.Context, p poisoned) {
	queued, wait := f.burial.add(p)
	if queued {
		return
	}
	// A NAK; if it is lost, AckWait does the same.
	_ = p.delivery.Settle(ctx, &bus.RetryError{Class: bus.ClassInboxFull, Delay: f.consumer.conn.Jittered(defaultNakDelay) + wait, Err: errNoBurial})
}

// buryPoison puts messages aside until ctx ends; then the drain gives back what is left.
func (f *feed) buryPoison(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-f.burial.queue:
			f.bury(ctx, p)
		}
	}
}

func (f *feed) bury(ctx context.Context, p poisoned) {
	cause := f.secondLook(ctx, p)
	if ctx.Err() != nil {
		return
	}
	if cause == nil {
		f.accept(ctx, p.delivery)
		return
	}
	if err := p.delivery.Settle(ctx, cause); err != nil {
		f.consumer.conn.Log.V(1).Info("Poison message comes again", "consumer", f.name, "cause", err.Error())
	}
	if _, permanent := errors.AsType[*PermanentError](cause); permanent && !p.delivery.Buried() {
		f.consumer.conn.Wait(ctx, f.consumer.conn.Jittered(retryDelay)) // nobody stores dead letters now: no use in trying with each
	}
}

// secondLook gives a message whose token was made by no key at hand another chance: nil says that
// it is authentic after all. While the keys cannot be read it stays, and no try counts. Without
// usable keys a few tries are all that it gets: forged messages would fill it for as long as
// nobody repairs the keys.
func (f *feed) secondLook(ctx context.Context, p poisoned) error {
	if !errors.Is(p.cause, ErrBadToken) {
		return p.cause
	}
	d := p.delivery
	ok, err := f.consumer.keys.Authentic(ctx, d.ID, d.token, p.at)
	switch {
	case ok:
		return f.readAuthentic(ctx, d)
	case err == nil:
		return p.cause
	case !errors.Is(err, bus.ErrConfig):
		return &bus.RetryError{
			Class: bus.ClassStoreUnavailable, Delay: f.consumer.conn.Jittered(defaultNakDelay),
			Err: fmt.Errorf("%w by the keys at hand, and others cannot be read: %w", ErrBadToken, err),
		}
	case d.Failures+1 < maxPoisonTries:
		return fmt.Errorf("%w by the keys at hand: %w", ErrBadToken, err)
	default:
		return p.cause
	}
}

// readAuthentic reads what a message says that is authentic after all. That it cannot be read now
// says nothing about the message, so it does not count as a failure.
func (f *feed) readAuthentic(ctx context.Context, d *Delivery) error {
	err := f.consumer.readBack(ctx, d.key, true, func(m *bus.Message) error {
		d.decode(m.Data)
		return nil
	})
	if err != nil {
		return &bus.RetryError{Class: bus.ClassStoreUnavailable, Delay: f.consumer.conn.Jittered(defaultNakDelay), Err: err}
	}
	return nil
}
