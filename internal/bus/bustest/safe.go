// SPDX-License-Identifier: Apache-2.0

package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
)

// Errors of a Safe: the keys cannot be read, and they cannot be used.
var (
	ErrAway   = errors.New("the keys are out of reach")
	ErrNoKeys = fmt.Errorf("%w: an entry is missing", bus.ErrConfig)
)

// NextKey is that after the first rotation.
func NextKey() keys.Key {
	return keys.Key{ID: "k2", Secret: []byte("the key after the first rotation")}
}

// ForeignKey was never configured.
func ForeignKey() keys.Key {
	return keys.Key{ID: "k9", Secret: []byte("a key that nobody ever configured")}
}

// Rotated is Ring after a rotation.
func Rotated() keys.Keyring {
	return keys.Keyring{Current: NextKey(), Previous: Ring().Current}
}

// Safe is where the keys are kept.
type Safe struct {
	mu     sync.Mutex
	ring   keys.Keyring
	err    error
	gaveUp int
	reads  int
	shut   chan struct{} // while it is open, a read hangs; nil: none does
}

// NewSafe makes a Safe with a ring in it.
func NewSafe(ring keys.Keyring) *Safe { return &Safe{ring: ring} }

// Put changes what a read gives.
func (s *Safe) Put(ring keys.Keyring, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring, s.err = ring, err
}

// Reads is how often the keys were read.
func (s *Safe) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// GaveUp is how many reads that hung have ended without the keys.
func (s *Safe) GaveUp() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gaveUp
}

// Shut has reads hang until open.
func (s *Safe) Shut() (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shut := make(chan struct{})
	s.shut = shut
	return sync.OnceFunc(func() { close(shut) })
}

// Load reads the keys, as keys.New wants it.
func (s *Safe) Load(ctx context.Context) (keys.Keyring, error) {
	s.mu.Lock()
	ring, err, shut := s.ring, s.err, s.shut
	s.reads++
	s.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gaveUp++
			return keys.Keyring{}, ctx.Err()
		}
	}
	return ring, err
}
