package workflowrun

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// letterBytes is what a result that waits holds beside its body: names, places in maps and lists.
	letterBytes = 1 << 10
	// comeBackRate is how many results a second, and comeBackBytes how many of their bytes, come again that found no room. Each of
	// them costs its way from NATS, for nothing if there is still no room.
	comeBackRate  = 500
	comeBackBytes = 16 << 20
	// longestComeBack bounds the wait of one.
	longestComeBack = time.Minute
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
	size     int      // bytes of its body
	// refreshed says that the run was to be read live for this result already.
	refreshed bool
	// exhausted is the settlement of a result whose deliveries are used up, which waits until status says so; nil: they are not.
	exhausted *bus.PermanentError
	// tenant is whose share of the inbox it takes.
	tenant string
}

func (l *letter) bytes() int64 { return int64(l.size + letterBytes) }

// inbox holds the results that wait for each run. It is bounded in places and in bytes, and each run and each tenant, which is a
// namespace here, has a share of both: see internal/share. Beyond that a result goes back to NATS.
type inbox struct {
	mu     sync.Mutex
	byRun  map[types.UID][]*letter
	places *share.Room
	bytes  *share.Room
	pace   *share.Pace
}

func newInbox(places int, bytes int64) *inbox {
	return &inbox{
		byRun: map[types.UID][]*letter{}, places: share.NewRoom(int64(places)), bytes: share.NewRoom(bytes),
		pace: share.NewPace(longestComeBack),
	}
}

// put lets a result of a tenant's run wait, if there is room for it.
func (b *inbox) put(tenant string, uid types.UID, l *letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.places.Take(tenant, string(uid), 1) {
		return false
	}
	if !b.bytes.Take(tenant, string(uid), l.bytes()) {
		b.places.Free(tenant, string(uid), 1)
		return false
	}
	l.tenant = tenant
	b.byRun[uid] = append(b.byRun[uid], l)
	return true
}

// comeBack is after which time a result of a tenant that found no room may come again.
func (b *inbox) comeBack(tenant string, l *letter, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := max(time.Second/comeBackRate, time.Second*time.Duration(l.bytes())/comeBackBytes)
	return b.pace.Wait(tenant, cost, now)
}

// waiting returns the results that wait for a run, in order of arrival. They stay in the inbox.
func (b *inbox) waiting(uid types.UID) []*letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.byRun[uid])
}

// runs are those for which results wait.
func (b *inbox) runs() []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.byRun))
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
		if ok {
			b.leave(uid, l)
		}
		return ok
	})
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
	for _, l := range all {
		b.leave(uid, l)
	}
	delete(b.byRun, uid)
	return all
}

// leave gives back the room of a result. b.mu is held.
func (b *inbox) leave(uid types.UID, l *letter) {
	b.places.Free(l.tenant, string(uid), 1)
	b.bytes.Free(l.tenant, string(uid), l.bytes())
}

// backlog is what waits in an inbox, and how many bytes of it may.
type backlog struct {
	results, bytes, limit int64
	oldest                time.Time // when the stream stored the oldest; zero: none waits
}

func (b *inbox) backlog() backlog {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := backlog{results: b.places.Used(), bytes: b.bytes.Used(), limit: b.bytes.Limit()}
	for _, waiting := range b.byRun {
		for _, l := range waiting {
			s.oldest = pacing.Earliest(s.oldest, l.fact.PublishedAt)
		}
	}
	return s
}
