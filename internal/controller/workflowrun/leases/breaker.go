// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// BreakerPause is how long after a failure of the lock store no other pass asks it, and the
	// least time after which a run that needs the lock tries again.
	BreakerPause = time.Second
	// longestPause is the longest such time: many runs that all wait for the store must not cost
	// much, nor wait long when it is back.
	longestPause = 5 * time.Second
	// pauseShare is the part of an outage that a run may wait beyond its end.
	pauseShare = 8
)

// Breaker keeps many passes from each waiting for the time-out of a lock store that is down, so
// that cancels and deadlines, which do not need it, are not held up.
type Breaker struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	since time.Time // when the first of the failures in a row was seen
	until time.Time
	cause error
}

// Open returns the failure that the next pass would most likely see, or nil. After the pause one
// pass finds out, while the others keep out for one more.
func (b *Breaker) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if now.Before(b.until) {
		return b.cause
	}
	if b.cause != nil {
		b.until = now.Add(BreakerPause)
	}
	return nil
}

// Trip notes a failure; it says whether it is the first one.
func (b *Breaker) Trip(cause error) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first = b.cause == nil
	if first {
		b.since = b.clock.Now()
	}
	b.until, b.cause = b.clock.Now().Add(BreakerPause), cause
	return first
}

// failing says whether the store failed when it was last asked.
func (b *Breaker) failing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause != nil
}

// pause is the base of the wait of a run that needs the store: the longer it is down, the longer.
func (b *Breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		return BreakerPause
	}
	return min(max(b.clock.Now().Sub(b.since)/pauseShare, BreakerPause), longestPause)
}

// reset notes that the store answered; it says whether it did not before.
func (b *Breaker) reset() (recovered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	recovered = b.cause != nil
	b.until, b.cause = time.Time{}, nil
	return recovered
}
