package workflowrun

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// delivery is a result that waits to be applied and is then settled, once, by whoever took it.
type delivery interface {
	// Settle acks with nil, and otherwise maps the error by the retry contract.
	Settle(ctx context.Context, err error) error
	// Buried says whether it was settled as a dead letter that is stored.
	Buried() bool
}

// letter is one result in an inbox.
type letter struct {
	fact     lifecycle.Result
	since    time.Time
	delivery delivery // nil: it was read in the stream, and is not ours to settle
	failures int      // of earlier deliveries, those that failed and count
	// refreshed says that the run was to be read live for this result already.
	refreshed bool
	// exhausted is the settlement of a result whose deliveries are used up, which waits until status says so; nil: they are not.
	exhausted *bus.PermanentError
}

// inbox holds the results that wait for each run. It is bounded: beyond that a result goes back to NATS.
type inbox struct {
	mu    sync.Mutex
	byRun map[types.UID][]*letter
	total int
	limit int
}

func newInbox(limit int) *inbox {
	return &inbox{byRun: map[types.UID][]*letter{}, limit: limit}
}

// put reports false when the inbox is full.
func (b *inbox) put(uid types.UID, l *letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total >= b.limit {
		return false
	}
	b.total++
	b.byRun[uid] = append(b.byRun[uid], l)
	return true
}

// waiting returns the results that wait for a run, in order of arrival. They stay in the inbox.
func (b *inbox) waiting(uid types.UID) []*letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.byRun[uid])
}

// remove takes results out; the caller settles them.
func (b *inbox) remove(uid types.UID, gone []*letter) {
	if len(gone) == 0 {
		return
	}
	set := make(map[*letter]struct{}, len(gone))
	for _, l := range gone {
		set[l] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := slices.DeleteFunc(b.byRun[uid], func(l *letter) bool {
		_, ok := set[l]
		return ok
	})
	b.total -= len(b.byRun[uid]) - len(left)
	if len(left) == 0 {
		delete(b.byRun, uid)
		return
	}
	b.byRun[uid] = left
}

// takeAll empties a run's inbox.
func (b *inbox) takeAll(uid types.UID) []*letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.byRun[uid]
	b.total -= len(all)
	delete(b.byRun, uid)
	return all
}
