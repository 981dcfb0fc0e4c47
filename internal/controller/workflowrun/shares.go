package workflowrun

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// shares gives places to tenants, so that none can have all of them. Of those who wait, the tenant with the fewest places is next, and of
// two with as many the one that had none for longer; the requests of one tenant come one after the other.
type shares struct {
	// sparing leaves places free for others: a tenant gets one only if more are free than it has, so half of all at most, and each
	// of n tenants gets an n+1st. One that has none gets any place that is free.
	sparing bool
	metrics placeMetrics

	mu    sync.Mutex
	free  int
	used  map[string]int       // places by tenant; none with 0
	lines map[string][]*ticket // who waits, by tenant; none without
	last  map[string]uint64    // when a tenant last got a place, in turns; who did not for lastTurns is forgotten
	turn  uint64               // counts requests and places
}

// lastTurns is for how many turns it is remembered when a tenant had a place: it bounds the memory.
const lastTurns = 1 << 10

// ticket is a request for a place that waits, or has it.
type ticket struct {
	tenant  string
	turn    uint64
	granted func() // called once, when it has its place; must not block
	has     bool
}

func newShares(places int, sparing bool, m placeMetrics) *shares {
	return &shares{sparing: sparing, metrics: m, free: places, used: map[string]int{}, lines: map[string][]*ticket{}, last: map[string]uint64{}}
}

// take gives a tenant a place at once (has), or has it wait for one.
func (s *shares) take(tenant string, granted func()) *ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	t := &ticket{tenant: tenant, turn: s.turn, granted: granted}
	if len(s.lines[tenant]) == 0 && s.may(tenant) {
		s.grant(t)
		return t
	}
	s.metrics.changed(0, 1)
	s.lines[tenant] = append(s.lines[tenant], t)
	return t
}

// may says whether a tenant may have another place.
func (s *shares) may(tenant string) bool {
	n := s.used[tenant]
	return s.free > 0 && (n == 0 || !s.sparing || n < s.free)
}

func (s *shares) grant(t *ticket) {
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

// has says whether a request that waited has its place now.
func (s *shares) has(t *ticket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.has
}

// give takes a place, or a request that waits, back.
func (s *shares) give(t *ticket) {
	for _, next := range s.giveUp(t) {
		next.granted()
	}
}

// giveUp says who has a place by that.
func (s *shares) giveUp(t *ticket) (next []*ticket) {
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
func (s *shares) first() (next *ticket) {
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
func (s *shares) before(a, b *ticket) bool {
	return cmp.Or(cmp.Compare(s.used[a.tenant], s.used[b.tenant]), cmp.Compare(s.last[a.tenant], s.last[b.tenant]), cmp.Compare(a.turn, b.turn)) < 0
}

// drop takes a request out of its line.
func (s *shares) drop(t *ticket) {
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

// wait waits for a place. Its error is why the context ended.
func (s *shares) wait(ctx context.Context, tenant string) (done func(), err error) {
	ready := make(chan struct{})
	t := s.take(tenant, func() { close(ready) })
	if s.has(t) {
		return func() { s.give(t) }, nil
	}
	select {
	case <-ready:
		return func() { s.give(t) }, nil
	case <-ctx.Done():
		s.give(t)
		return nil, fmt.Errorf("wait for a place: %w", context.Cause(ctx))
	}
}

// turns shares passes among tenants. A run whose tenant has its share waits in a line and not on a worker, and is woken when it is its
// turn. At most one entry per run that wants a pass.
type turns struct {
	shares *shares
	wake   func(types.NamespacedName)

	mu      sync.Mutex
	waiting map[types.NamespacedName]*ticket
	seen    [2]sighting // the last two tenants of whom a run wanted a pass, the later one first
}

// sighting is when a run of a tenant last wanted a pass.
type sighting struct {
	tenant string
	at     time.Time
}

func newTurns(places int, m placeMetrics, wake func(types.NamespacedName)) *turns {
	return &turns{shares: newShares(places, true, m), wake: wake, waiting: map[types.NamespacedName]*ticket{}}
}

// see notes that a run of a tenant wants a pass.
func (t *turns) see(tenant string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[0].tenant != tenant {
		t.seen[1] = t.seen[0]
	}
	t.seen[0] = sighting{tenant, now}
}

// others says whether a run of another tenant wanted a pass since then.
func (t *turns) others(tenant string, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.seen[:], func(s sighting) bool { return s.tenant != tenant && s.tenant != "" && !s.at.Before(since) })
}

// enter says whether a pass may be made over a run now; if not, the run is woken when it may. The workqueue has each run once, so nobody
// else asks for the same one.
func (t *turns) enter(key types.NamespacedName) (pass *ticket, may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pass, waits := t.waiting[key]
	if !waits {
		pass = t.shares.take(key.Namespace, func() { t.wake(key) })
	}
	if t.shares.has(pass) {
		delete(t.waiting, key)
		return pass, true
	}
	t.waiting[key] = pass
	return nil, false
}

// leave ends a pass.
func (t *turns) leave(pass *ticket) { t.shares.give(pass) }
