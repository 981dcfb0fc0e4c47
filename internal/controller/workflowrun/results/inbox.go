// SPDX-License-Identifier: Apache-2.0

package results

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/share"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// pendingBytes is what a result that waits holds beside its body: names, places in
	// maps and lists.
	pendingBytes = 1 << 10
	// returnRate is how many results a second, and returnBytes how many of their bytes, are
	// delivered again that found no room. Each of them costs its way from NATS, for nothing if
	// there is still no room.
	returnRate  = 500
	returnBytes = 16 << 20
	// longestReturn bounds the wait of one.
	longestReturn = time.Minute
)

// Inbox holds the results that wait for each run. It is bounded in places and in bytes, and each
// run and each tenant, which is a namespace here, has a share of both: see internal/share. Beyond
// that a result goes back to NATS.
type Inbox struct {
	mu     sync.Mutex
	byRun  map[types.UID][]*Pending
	places *share.Room
	bytes  *share.Room
	pace   *share.Pace
}

// NewInbox makes an inbox for so many results, and so many bytes of them.
func NewInbox(places int, bytes int64) *Inbox {
	return &Inbox{
		byRun: map[types.UID][]*Pending{}, places: share.NewRoom(int64(places)), bytes: share.NewRoom(bytes),
		pace: share.NewPace(longestReturn),
	}
}

// Put lets a result of a tenant's run wait, if there is room for it.
func (b *Inbox) Put(tenant string, uid types.UID, l *Pending) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.places.Take(tenant, string(uid), 1) {
		return false
	}
	if !b.bytes.Take(tenant, string(uid), l.Bytes()) {
		b.places.Free(tenant, string(uid), 1)
		return false
	}
	l.tenant = tenant
	b.byRun[uid] = append(b.byRun[uid], l)
	return true
}

// ReturnAfter is the wait before a result of a tenant that found no room may be delivered again.
func (b *Inbox) ReturnAfter(tenant string, l *Pending, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := max(time.Second/returnRate, time.Second*time.Duration(l.Bytes())/returnBytes)
	return b.pace.Wait(tenant, cost, now)
}

// Waiting returns the results that wait for a run, in order of arrival. They stay in the inbox.
func (b *Inbox) Waiting(uid types.UID) []*Pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.byRun[uid])
}

// Runs are those for which results wait.
func (b *Inbox) Runs() []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.byRun))
}

// Remove takes results out, and says how many were there; the caller settles them.
func (b *Inbox) Remove(uid types.UID, gone []*Pending) (n int) {
	if len(gone) == 0 {
		return 0
	}
	set := make(map[*Pending]struct{}, len(gone))
	for _, l := range gone {
		set[l] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := slices.DeleteFunc(b.byRun[uid], func(l *Pending) bool {
		_, ok := set[l]
		if ok {
			n++
			b.leave(uid, l)
		}
		return ok
	})
	if len(left) == 0 {
		delete(b.byRun, uid)
		return n
	}
	b.byRun[uid] = left
	return n
}

// TakeAll empties a run's inbox.
func (b *Inbox) TakeAll(uid types.UID) []*Pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.byRun[uid]
	for _, l := range all {
		b.leave(uid, l)
	}
	delete(b.byRun, uid)
	return all
}

// Forget takes out all that waits for runs of partitions, whose results are given back to NATS.
func (b *Inbox) Forget(partitions map[int]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, all := range b.byRun {
		if !partitions[protocol.Partition(string(uid))] {
			continue
		}
		for _, l := range all {
			b.leave(uid, l)
		}
		delete(b.byRun, uid)
	}
}

// leave gives back the room of a result. b.mu is held.
func (b *Inbox) leave(uid types.UID, l *Pending) {
	b.places.Free(l.tenant, string(uid), 1)
	b.bytes.Free(l.tenant, string(uid), l.Bytes())
}

// Backlog is what waits in an inbox, and how many bytes of it may.
type Backlog struct {
	Results, Bytes, Limit int64
	Oldest                time.Time // when the stream stored the oldest; zero: none waits
}

// Backlog says what waits.
func (b *Inbox) Backlog() Backlog {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Backlog{Results: b.places.Used(), Bytes: b.bytes.Used(), Limit: b.bytes.Limit()}
	for _, waiting := range b.byRun {
		for _, l := range waiting {
			s.Oldest = pacing.Earliest(s.Oldest, l.Fact.PublishedAt)
		}
	}
	return s
}
