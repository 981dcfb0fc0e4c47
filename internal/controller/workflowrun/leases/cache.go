// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
)

const (
	// returnParallel bounds the leases given back at the same time when the operator stops.
	returnParallel = 64
	// returnTimeout bounds how long that is waited for: with Redis down each takes up to a second.
	returnTimeout = 5 * time.Second
)

// Cache holds the leases that runs keep between passes (scope Run): at most one per run under way.
// A lease is either here or in the hands of one pass, so whoever takes it out may end it, and
// stopping never ends the lease of a pass that works under it.
type Cache struct {
	// Before, if set, is called before all leases are given back when the operator stops.
	Before func(context.Context)

	// drives says whether this process drives a run: else its lease is not kept, as nobody here
	// would ever end it.
	drives func(types.UID) bool

	mu      sync.Mutex
	stopped bool
	byRun   map[types.UID]*lockmgr.Lease
}

// NewCache makes an empty cache. It asks drives within its own lock.
func NewCache(drives func(types.UID) bool) *Cache {
	return &Cache{drives: drives, byRun: map[types.UID]*lockmgr.Lease{}}
}

// take hands the lease of a run to the caller, or nil.
func (c *Cache) take(uid types.UID) *lockmgr.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.byRun[uid]
	delete(c.byRun, uid)
	return l
}

// Of is the lease that a run keeps; nil: none. It stays in the cache.
func (c *Cache) Of(uid types.UID) *lockmgr.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byRun[uid]
}

// Runs are those that keep a lease.
func (c *Cache) Runs() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.byRun))
}

// keep takes over the lease of a run. Once the operator stops it is given back instead, and so is
// that of a run which this process drives no more: a pass may outlast the hand-over of its run, and
// DropAll found nothing then.
func (c *Cache) keep(ctx context.Context, uid types.UID, l *lockmgr.Lease) {
	c.mu.Lock()
	stays := !c.stopped && c.drives(uid)
	if stays {
		c.byRun[uid] = l
	}
	c.mu.Unlock()
	if !stays {
		l.Drop(ctx)
	}
}

// Drop gives back the lease of a run that needs it no more.
func (c *Cache) Drop(ctx context.Context, uid types.UID) {
	if l := c.take(uid); l != nil {
		l.Drop(ctx)
	}
}

// DropAll gives back the leases of runs that this process drives no more. Those that ctx leaves no
// time for are given back behind the caller's back: else they would be renewed for ever.
func (c *Cache) DropAll(ctx context.Context, of func(types.UID) bool) {
	c.mu.Lock()
	var gone []*lockmgr.Lease
	for uid, l := range c.byRun {
		if of(uid) {
			gone = append(gone, l)
			delete(c.byRun, uid)
		}
	}
	c.mu.Unlock()
	drop(ctx, gone)
}

// Start waits until ctx ends and then gives back all leases, so that the next leader need not wait
// for them; passes that are under way give back theirs when they end.
func (c *Cache) Start(ctx context.Context) error {
	<-ctx.Done()
	if c.Before != nil {
		c.Before(context.WithoutCancel(ctx))
	}
	c.Stop(context.WithoutCancel(ctx))
	return nil
}

// Stop gives back all leases, and each that a pass would keep from now on.
func (c *Cache) Stop(ctx context.Context) {
	c.mu.Lock()
	c.stopped = true
	all := slices.Collect(maps.Values(c.byRun))
	c.byRun = nil
	c.mu.Unlock()
	drop(ctx, all)
}

// drop gives back leases, several at the same time. It waits for that, but not for too long.
func drop(ctx context.Context, all []*lockmgr.Lease) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var calls errgroup.Group
		calls.SetLimit(returnParallel)
		for _, l := range all {
			calls.Go(func() error {
				l.Drop(ctx)
				return nil
			})
		}
		_ = calls.Wait() // none fails
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
