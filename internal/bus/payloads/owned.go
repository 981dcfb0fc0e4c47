// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// rememberFor is for how long it is remembered whose parts are whose, also where nobody asks
	// for the list of outputs, which tells what went.
	rememberFor = 24 * time.Hour
	// spareEntries is how many more entries may be remembered than twice as many as have parts.
	spareEntries = 10_000
)

// seed is that of the marks of this process.
var seed = maphash.MakeSeed()

// entries are those of the objects that were read. An entry does not change, and one that takes its
// place comes after it. Marks stand for subjects: there may be a million. What is remembered may be
// wrong: entries go, and a stream that is made anew, or restored, begins with lower sequences.
type entries struct {
	mu      sync.Mutex
	since   time.Time        // by the server's clock
	next    uint64           // where to read on
	last    time.Time        // when the entry before that was stored
	whole   bool             // the reading came to its end once
	parts   map[uint64]owner // by the mark of the entry's subject
	doubted []uint64         // those of them that a list did not have
}

// owner is an entry.
type owner struct {
	seq   uint64
	parts uint64 // mark of their subject
}

// forget has all entries read anew.
func (k *entries) forget(at time.Time) {
	k.since, k.next, k.whole, k.parts, k.doubted = at, 1, false, map[uint64]owner{}, nil
}

// doubt notes which entries a list of all does not have. It may be wrong: see readOn.
func (k *entries) doubt(listed []string) {
	there := make(map[uint64]bool, len(listed))
	for _, subject := range listed {
		there[maphash.String(seed, subject)] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubted = nil
	for of := range k.parts {
		if !there[of] {
			k.doubted = append(k.doubted, of)
		}
	}
}

// stale says that it is time for that, where parts have so many subjects.
func (k *entries) stale(at time.Time, subjects int) bool {
	been := at.Sub(k.since)
	return been < 0 || been >= rememberFor || len(k.parts) > 2*subjects+spareEntries
}

// reading says what an answer about parts rests on.
type reading struct {
	since time.Time // when all entries were read last, or were begun to be
	anew  bool      // that reading came to its end just now
}

// serves says whether parts may go by it that were silent for so long at that time.
func (r reading) serves(at time.Time, silent time.Duration) bool {
	return r.anew && at.Sub(r.since) <= silent
}

// tooSoon says whether it is too soon for another one.
func (r reading) tooSoon(at time.Time, silent time.Duration) bool {
	return !r.anew && at.Sub(r.since) < silent
}

// unowned are those of the subjects of parts, listed at a time of the server, that belong to no
// object, as far as is remembered; if anew, for sure. It reads what came since the last look: with
// many outputs it would ask the server for minutes otherwise.
func (s *Store) unowned(ctx context.Context, parts []string, at time.Time, anew bool) ([]string, reading, error) {
	k := &s.entries
	k.mu.Lock()
	defer k.mu.Unlock()
	other, err := s.replaced(ctx, k)
	if err != nil {
		return nil, reading{}, err
	}
	if anew || other || k.stale(at, len(parts)) {
		k.forget(at)
	}
	known := reading{since: k.since, anew: !k.whole}
	if err := s.settle(ctx, k); err != nil {
		return nil, known, err
	}
	if err := s.readOn(ctx, k); err != nil {
		return nil, known, err
	}
	k.whole = true
	owned := make(map[uint64]bool, len(k.parts))
	for _, o := range k.parts {
		owned[o.parts] = true
	}
	return slices.DeleteFunc(parts, func(p string) bool { return owned[maphash.String(seed, p)] }), known, nil
}

// replaced says, of a reading that broke off, that the entry which it read last is not there. The
// stream may be another one, with other entries before that one, whose parts would be loose.
func (s *Store) replaced(ctx context.Context, k *entries) (bool, error) {
	if k.whole || k.next <= 1 {
		return false, nil
	}
	m, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{Seq: k.next - 1})
	return m == nil || !m.Time.Equal(k.last), err
}

// settle forgets those of the doubted entries that are gone.
func (s *Store) settle(ctx context.Context, k *entries) error {
	for ; len(k.doubted) > 0; k.doubted = k.doubted[1:] {
		of := k.doubted[0]
		m, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{Seq: k.parts[of].seq})
		if err != nil {
			return err
		}
		if m == nil || maphash.String(seed, m.Subject) != of {
			delete(k.parts, of)
		}
	}
	return nil
}

// readOn reads entries one after the other: a list of them comes in pages, each of a list made
// anew, and has what is there throughout in neither of two pages if another entry goes in between.
// Its parts would be taken for loose. What comes after the last entry of now is left out, or there
// might be no end. Sequences say what that is: times are those of servers, whose clocks may be
// ahead and are put right. After an error the next look goes on from there, in the same stream.
func (s *Store) readOn(ctx context.Context, k *entries) error {
	all := s.conn.Names.PayloadEntry("") + ">"
	last, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{LastFor: all})
	if err != nil {
		return err
	}
	if last == nil {
		k.forget(k.since)
		return nil
	}
	for k.next <= last.Seq {
		m, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{Seq: k.next, NextFor: all})
		if err != nil || m == nil {
			return err
		}
		k.next, k.last = m.Seq+1, m.Time
		of := maphash.String(seed, m.Subject)
		delete(k.parts, of) // the last one counts
		e, err := protocol.DecodePayloadEntry(m.Data)
		if err == nil && !e.Deleted && literal(m.Subject) { // else no object has them
			k.parts[of] = owner{m.Seq, maphash.String(seed, s.conn.Names.PayloadChunks(e.NUID))}
		}
	}
	return nil
}
