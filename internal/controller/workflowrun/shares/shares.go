// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Shares gives places to tenants, so that none can have all of them. Of those who wait, the tenant
// with the fewest places is next, and of two with as many the one that had none for longer; the
// requests of one tenant come one after the other.
type Shares struct {
	// sparing leaves places free for others: a tenant gets one only if more are free than it has,
	// so half of all at most, and each of n tenants gets an n+1st. One that has none gets any place
	// that is free.
	sparing bool
	kept    int // places that are left free for tenants who have none
	metrics KindMetrics

	mu    sync.Mutex
	free  int
	used  map[string]int       // places by tenant; none with 0
	lines map[string][]*Ticket // who waits, by tenant; none without
	last  map[string]uint64    // when a tenant last got a place, in turns; who did not for lastTurns is forgotten
	turn  uint64               // counts requests and places
}

// lastTurns is for how many turns it is remembered when a tenant had a place: it bounds the memory.
const lastTurns = 1 << 10

// Ticket is a request for a place that waits, or has it.
type Ticket struct {
	tenant  string
	turn    uint64
	granted func() // called once, when it has its place; must not block
	has     bool
}

// New makes places. Sparing: see Shares.
func New(places int, sparing bool, m KindMetrics) *Shares {
	return &Shares{sparing: sparing, metrics: m, free: places, used: map[string]int{}, lines: map[string][]*Ticket{}, last: map[string]uint64{}}
}

// NewWithOneMore makes places for all tenants, and one more for one that has none: it need not wait
// for those of others to come free, as long as one such tenant comes at a time.
func NewWithOneMore(places int, m KindMetrics) *Shares {
	s := New(places+1, false, m)
	s.kept = 1
	return s
}

// Take gives a tenant a place at once (has), or has it wait for one.
func (s *Shares) Take(tenant string, granted func()) *Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	return s.ask(&Ticket{tenant: tenant, turn: s.turn, granted: granted})
}

// Again is Take for whoever gave back the place of a request without a use for it so far: it goes
// before all requests of its tenant that came later than that one.
func (s *Shares) Again(was *Ticket, granted func()) *Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ask(&Ticket{tenant: was.tenant, turn: was.turn, granted: granted})
}

// ask gives a request its place, or has it wait.
func (s *Shares) ask(t *Ticket) *Ticket {
	line := s.lines[t.tenant]
	if len(line) == 0 && s.may(t.tenant) {
		s.grant(t)
		return t
	}
	at, _ := slices.BinarySearchFunc(line, t, func(a, b *Ticket) int { return cmp.Compare(a.turn, b.turn) })
	s.metrics.changed(0, 1)
	s.lines[t.tenant] = slices.Insert(line, at, t)
	return t
}

// may says whether a tenant may have another place.
func (s *Shares) may(tenant string) bool {
	switch n := s.used[tenant]; {
	case n == 0:
		return s.free > 0
	case s.sparing:
		return s.free > n
	default:
		return s.free > s.kept
	}
}

func (s *Shares) grant(t *Ticket) {
	t.has = true
	s.free--
	s.used[t.tenant]++
	s.turn++
	s.last[t.tenant] = s.turn
	if len(s.last) > 2*lastTurns { // those of the last turns are half of it at most
		maps.DeleteFunc(s.last, func(_ string, at uint64) bool { return s.turn-at >= lastTurns })
	}
	s.metrics.changed(1, 0)
}

// Waiting is how many requests wait.
func (s *Shares) Waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		n += len(line)
	}
	return n
}

// Has says whether a request that waited has its place now.
func (s *Shares) Has(t *Ticket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.has
}

// Give takes a place, or a request that waits, back.
func (s *Shares) Give(t *Ticket) {
	for _, next := range s.giveUp(t) {
		next.granted()
	}
}

// giveUp says who has a place by that.
func (s *Shares) giveUp(t *Ticket) (next []*Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.has {
		s.drop(t)
		return nil
	}
	s.metrics.changed(-1, 0)
	s.free++
	if s.used[t.tenant]--; s.used[t.tenant] == 0 {
		delete(s.used, t.tenant)
	}
	for first := s.first(); first != nil; first = s.first() {
		s.drop(first)
		s.grant(first)
		next = append(next, first)
	}
	return next
}

// first is who is next, of those that may have a place; nil: nobody.
func (s *Shares) first() (next *Ticket) {
	for tenant, line := range s.lines {
		if !s.may(tenant) {
			continue
		}
		if next == nil || s.before(line[0], next) {
			next = line[0]
		}
	}
	return next
}

// before says whether a request goes before that of another tenant.
func (s *Shares) before(a, b *Ticket) bool {
	return cmp.Or(cmp.Compare(s.used[a.tenant], s.used[b.tenant]), cmp.Compare(s.last[a.tenant], s.last[b.tenant]), cmp.Compare(a.turn, b.turn)) < 0
}

// drop takes a request out of its line.
func (s *Shares) drop(t *Ticket) {
	line := s.lines[t.tenant]
	switch i := slices.Index(line, t); i {
	case -1:
		return
	case 0:
		line = line[1:] // a tenant may have thousands of runs in line
	default:
		line = slices.Delete(line, i, i+1)
	}
	s.metrics.changed(0, -1)
	if s.lines[t.tenant] = line; len(line) == 0 {
		delete(s.lines, t.tenant)
	}
}

// Crowded says whether a tenant that has places would wait for another one.
func (s *Shares) Crowded(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used[tenant] > 0 && !s.may(tenant)
}

// Wait waits for a place. Its error is why the context ended.
func (s *Shares) Wait(ctx context.Context, tenant string) (done func(), err error) {
	ready := make(chan struct{})
	t := s.Take(tenant, func() { close(ready) })
	if s.Has(t) {
		return func() { s.Give(t) }, nil
	}
	select {
	case <-ready:
		return func() { s.Give(t) }, nil
	case <-ctx.Done():
		s.Give(t)
		return nil, fmt.Errorf("wait for a place: %w", context.Cause(ctx))
	}
}
