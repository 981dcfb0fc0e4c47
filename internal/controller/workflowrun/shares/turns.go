// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Turns shares passes among tenants. A run whose tenant has its share waits in a line and not on a
// worker, and is woken when it is its turn. At most one entry per run that wants a pass.
type Turns struct {
	shares *Shares
	aside  *Shares // places for passes that need a desk; nil: those keep the place that they have
	wake   func(types.NamespacedName)

	mu      sync.Mutex
	waiting map[types.NamespacedName]*Ticket
	inLine  map[types.NamespacedName]*Ticket // of runs that wait for a place aside
	seen    [2]sighting                      // the last two tenants of whom a run wanted a pass, the later one first
}

// Pass is the place of a pass: one of those for all passes, or one aside.
type Pass struct {
	turns  *Turns
	key    types.NamespacedName
	of     *Shares // where its place is
	ticket *Ticket
}

// sighting is when a run of a tenant last wanted a pass.
type sighting struct {
	tenant string
	at     time.Time
}

// NewTurns makes places for passes; wake is called, and must not block, when it is the turn of a
// run that waits.
func NewTurns(places int, m KindMetrics, wake func(types.NamespacedName)) *Turns {
	return &Turns{shares: New(places, true, m), wake: wake, waiting: map[types.NamespacedName]*Ticket{}, inLine: map[types.NamespacedName]*Ticket{}}
}

// WithAside makes places aside, for passes that need a desk: those leave theirs to others.
func (t *Turns) WithAside(places int, m KindMetrics) *Turns {
	t.aside = New(places, true, m)
	return t
}

// See notes that a run of a tenant wants a pass.
func (t *Turns) See(tenant string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[0].tenant != tenant {
		t.seen[1] = t.seen[0]
	}
	t.seen[0] = sighting{tenant, now}
}

// Others says whether a run of another tenant wanted a pass since then.
func (t *Turns) Others(tenant string, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.seen[:], func(s sighting) bool { return s.tenant != tenant && s.tenant != "" && !s.at.Before(since) })
}

// Enter says whether a pass may be made over a run now; if not, the run is woken when it may. The
// workqueue has each run once, so nobody else asks for the same one.
func (t *Turns) Enter(key types.NamespacedName) (pass *Pass, may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of, line := t.shares, t.waiting
	ticket, waits := t.inLine[key]
	if waits {
		of, line = t.aside, t.inLine
	} else if ticket, waits = t.waiting[key]; !waits {
		ticket = t.shares.Take(key.Namespace, func() { t.wake(key) })
	}
	if of.Has(ticket) {
		delete(line, key)
		return &Pass{turns: t, key: key, of: of, ticket: ticket}, true
	}
	line[key] = ticket
	return nil, false
}

// Release ends a pass.
func (t *Turns) Release(pass *Pass) { pass.of.Give(pass.ticket) }

// stepAside has a pass that needs a desk leave its place to others, for one aside, which it has to
// its end. If there is none it keeps its place; or, if it may end, its run is in line: its next
// pass is made when there is one. Who has a place aside, or a desk, waits for no place of these, so
// all end.
func (p *Pass) stepAside(mayEnd bool) (ends bool) {
	t := p.turns
	if t.aside == nil || p.of == t.aside {
		return false
	}
	t.mu.Lock()
	ticket := t.aside.Take(p.key.Namespace, func() { t.wake(p.key) })
	has := t.aside.Has(ticket)
	if !has && mayEnd {
		t.inLine[p.key] = ticket
	}
	t.mu.Unlock()
	switch {
	case has:
		t.shares.Give(p.ticket)
		p.of, p.ticket = t.aside, ticket
	case !mayEnd:
		t.aside.Give(ticket)
	}
	return !has && mayEnd
}

// standInLine is how many runs wait for a place aside.
func (t *Turns) standInLine() int {
	if t.aside == nil {
		return 0
	}
	return t.aside.Waiting()
}
