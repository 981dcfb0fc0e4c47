package workflowrun

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

const (
	// returnParallel bounds the leases given back at the same time when the operator stops.
	returnParallel = 64
	// returnTimeout bounds how long that goes on: with Redis down each takes up to a second, and what is left ends with its TTL.
	returnTimeout = 5 * time.Second
)

// keeper holds the leases that runs keep between passes (scope Run): at most one per run under way. A lease is either here or in
// the hands of one pass, so whoever takes it out may end it, and stopping never ends the lease of a pass that works under it.
type keeper struct {
	mu      sync.Mutex
	stopped bool
	byRun   map[types.UID]*lockmgr.Lease
}

func newKeeper() *keeper { return &keeper{byRun: map[types.UID]*lockmgr.Lease{}} }

// take hands the lease of a run to the caller, or nil.
func (k *keeper) take(uid types.UID) *lockmgr.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.byRun[uid]
	delete(k.byRun, uid)
	return l
}

func (k *keeper) has(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byRun[uid] != nil
}

// runs are those that keep a lease.
func (k *keeper) runs() []types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.byRun))
}

// keep takes over the lease of a run; once the operator stops it is given back instead.
func (k *keeper) keep(ctx context.Context, uid types.UID, l *lockmgr.Lease) {
	k.mu.Lock()
	stopped := k.stopped
	if !stopped {
		k.byRun[uid] = l
	}
	k.mu.Unlock()
	if stopped {
		l.Drop(ctx)
	}
}

// drop gives back the lease of a run that nobody will need again.
func (k *keeper) drop(ctx context.Context, uid types.UID) {
	if l := k.take(uid); l != nil {
		l.Drop(ctx)
	}
}

// Start waits until ctx ends and then gives back all leases, so that the next leader need not wait for them; passes that are
// under way give back theirs when they end.
func (k *keeper) Start(ctx context.Context) error {
	<-ctx.Done()
	k.stop(context.WithoutCancel(ctx))
	return nil
}

func (k *keeper) stop(ctx context.Context) {
	k.mu.Lock()
	k.stopped = true
	leases := k.byRun
	k.byRun = nil
	k.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	var calls sync.WaitGroup
	defer calls.Wait()
	slots := make(chan struct{}, returnParallel)
	for _, l := range leases {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		calls.Go(func() {
			defer func() { <-slots }()
			l.Drop(ctx)
		})
	}
}
