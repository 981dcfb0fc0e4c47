package bus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// keyReadPause is the least time between two reads of the keys. Every forged token asks for one: whoever floods the results
	// must not flood the place where the keys are. A token waits so long at most before it is refused.
	keyReadPause = 100 * time.Millisecond
	// maxPoisonTries bounds the deliveries of a message that cannot be judged because there are no usable keys to judge it by.
	maxPoisonTries = 3
)

// liveKeys are the keys in use. Keys are rotated while the process runs, and another replica may sign with a new one before this
// one has heard of it. So a token is refused only by keys that were read after it had come: its key was stored before it.
type liveKeys struct {
	ring  atomic.Pointer[Keyring]
	load  func(context.Context) (Keyring, error)
	clock clock.WithTicker

	reading chan struct{} // has one place, for who reads; it guards what follows
	tried   time.Time     // when the last read began
	read    time.Time     // when the last read that came to an end began
	err     error         // of that read
}

func newLiveKeys(c Config) *liveKeys {
	k := &liveKeys{load: c.LoadKeys, clock: c.Clock, reading: make(chan struct{}, 1)}
	k.ring.Store(&c.Keys)
	return k
}

func (k *liveKeys) sign(id protocol.JobID) string { return k.ring.Load().Sign(id) }

// verify judges by the keys at hand. False is not the last word: see authentic.
func (k *liveKeys) verify(id protocol.JobID, token string) bool {
	return k.ring.Load().Verify(id, token)
}

// authentic tells whether token, which was here at since, answers id. Its error, with false, is that of reading the keys.
func (k *liveKeys) authentic(ctx context.Context, id protocol.JobID, token string, since time.Time) (bool, error) {
	if k.verify(id, token) {
		return true, nil
	}
	if k.load == nil || !tokenPattern.MatchString(token) {
		return false, nil // no key whatever made it
	}
	err := k.readSince(ctx, since)
	return k.verify(id, token), err // also after an error: another key may have come meanwhile
}

// readSince makes sure that the keys were read after since, and gives the error of that read. Where it fails, or the keys cannot
// be used, those at hand stay.
func (k *liveKeys) readSince(caller context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(caller, callTimeout)
	defer cancel()
	select {
	case k.reading <- struct{}{}:
		defer func() { <-k.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if k.read.After(since) {
		return k.err // one read judges all that had come before it
	}
	if err := k.pause(ctx); err != nil {
		return err
	}
	began := k.clock.Now()
	k.tried = began
	ring, err := k.load(ctx)
	if err == nil {
		err = ring.Check()
	}
	if err == nil {
		k.ring.Store(&ring)
	} else if caller.Err() != nil {
		return err // says nothing to others
	}
	k.read, k.err = began, err
	return err
}

func (k *liveKeys) pause(ctx context.Context) error {
	left := k.tried.Add(keyReadPause).Sub(k.clock.Now())
	if left <= 0 {
		return nil
	}
	t := k.clock.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ReloadKeys reads the keys now. From then on jobs are signed with the current one. After an error, ErrConfig or of LoadKeys, the
// keys that were in use stay in use.
func (b *Bus) ReloadKeys(ctx context.Context) error {
	if b.keys.load == nil {
		return nil
	}
	if err := b.keys.readSince(ctx, b.clock.Now()); err != nil {
		return fmt.Errorf("reload keys: %w", err)
	}
	return nil
}

// secondLook gives a message whose token was made by no key at hand another chance: nil says that it is authentic after all.
// While the keys cannot be read it stays, and no try counts. Without usable keys a few tries are all that it gets: forged
// messages would fill the group for as long as nobody repairs the keys.
func (g *group) secondLook(ctx context.Context, p poisoned) error {
	if !errors.Is(p.cause, ErrBadToken) {
		return p.cause
	}
	d := p.delivery
	ok, err := g.bus.keys.authentic(ctx, d.ID, d.original.token(), p.at)
	switch {
	case ok:
		d.decode()
		return nil
	case err == nil:
		return p.cause
	case !errors.Is(err, ErrConfig):
		return &RetryError{
			Class: ClassStoreUnavailable, Delay: g.bus.jittered(defaultNakDelay),
			Err: fmt.Errorf("%w by the keys at hand, and others cannot be read: %w", ErrBadToken, err),
		}
	case d.Failures+1 < maxPoisonTries:
		return fmt.Errorf("%w by the keys at hand: %w", ErrBadToken, err)
	default:
		return p.cause
	}
}
