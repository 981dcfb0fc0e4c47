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
	wake   func(types.NamespacedName)

	mu      sync.Mutex
	waiting map[types.NamespacedName]*Ticket
	seen    [2]sighting // the last two tenants of whom a run wanted a pass, the later one first
}

// sighting is when a run of a tenant last wanted a pass.
type sighting struct {
	tenant string
	at     time.Time
}

// NewTurns makes places for passes; wake is called, and must not block, when it is the turn of a
// run that waits.
func NewTurns(places int, m KindMetrics, wake func(types.NamespacedName)) *Turns {
	return &Turns{shares: New(places, true, m), wake: wake, waiting: map[types.NamespacedName]*Ticket{}}
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
func (t *Turns) Enter(key types.NamespacedName) (pass *Ticket, may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pass, waits := t.waiting[key]
	if !waits {
		pass = t.shares.Take(key.Namespace, func() { t.wake(key) })
	}
	if t.shares.Has(pass) {
		delete(t.waiting, key)
		return pass, true
	}
	t.waiting[key] = pass
	return nil, false
}

// Release ends a pass.
func (t *Turns) Release(pass *Ticket) { t.shares.Give(pass) }
