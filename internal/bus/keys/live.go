// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// keyReadPause is the least time between two reads of the keys. Every forged token asks for one:
// whoever floods the results must not flood the place where the keys are. A token waits so long at
// most before it is refused.
const keyReadPause = 100 * time.Millisecond

// Live is the keys in use. Its methods may be called concurrently.
type Live struct {
	ring  atomic.Pointer[Keyring]
	load  func(context.Context) (Keyring, error)
	clock clock.WithTicker

	reading chan struct{} // has one place, for who reads; it guards what follows
	tried   time.Time     // when the last read began
	read    time.Time     // when the last read that came to an end began
	err     error         // of that read
}

// New begins with a ring, which must be usable: bus.ErrConfig. load reads the keys as they are now;
// nil: the ring for ever. It is called one call at a time, by Reload and before a token is refused,
// each time with at most 5 s. bus.ErrConfig in its error means that there are none that can be
// used, any other error that they could not be read.
func New(ring Keyring, load func(context.Context) (Keyring, error), c clock.WithTicker) (*Live, error) {
	if err := ring.Check(); err != nil {
		return nil, err
	}
	k := &Live{load: load, clock: c, reading: make(chan struct{}, 1)}
	k.ring.Store(&ring)
	return k, nil
}

// Sign makes the token of a job with the current key.
func (k *Live) Sign(id protocol.JobID) string { return k.ring.Load().Sign(id) }

// Verify judges by the keys at hand. False is not the last word: see Authentic.
func (k *Live) Verify(id protocol.JobID, token string) bool {
	return k.ring.Load().Verify(id, token)
}

// Authentic tells whether token, which was here at since, answers id. Its error, with false, is
// that of reading the keys.
func (k *Live) Authentic(ctx context.Context, id protocol.JobID, token string, since time.Time) (bool, error) {
	if k.Verify(id, token) {
		return true, nil
	}
	if k.load == nil || !tokenPattern.MatchString(token) {
		return false, nil // no key whatever made it
	}
	err := k.readSince(ctx, since)
	return k.Verify(id, token), err // also after an error: another key may have come meanwhile
}

// Reload reads the keys now. From then on jobs are signed with the current one. After an error,
// bus.ErrConfig or of load, the keys that were in use stay in use.
func (k *Live) Reload(ctx context.Context) error {
	if k.load == nil {
		return nil
	}
	if err := k.readSince(ctx, k.clock.Now()); err != nil {
		return fmt.Errorf("reload keys: %w", err)
	}
	return nil
}

// readSince makes sure that the keys were read after since, and gives the error of that read. Where
// it fails, or the keys cannot be used, those at hand stay.
func (k *Live) readSince(caller context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(caller, bus.CallTimeout)
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

func (k *Live) pause(ctx context.Context) error {
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
