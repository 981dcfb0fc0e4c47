// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Alone owns all partitions from the start to the end of one process. It is for --ownership=leader,
// where leader election says which process that is.
type Alone struct {
	handler Handler
	// patience bounds the last call of Handler.Lose.
	patience time.Duration
	owns     atomic.Bool
	mu       sync.Mutex
	users    users
}

// NewAlone is the owner of all partitions, once it is started. handler may be nil.
func NewAlone(handler Handler, patience time.Duration) *Alone {
	return &Alone{handler: handler, patience: patience, users: users{}}
}

// Start owns all partitions until ctx ends. It implements manager.Runnable.
func (a *Alone) Start(ctx context.Context) error {
	all := make([]int, Partitions)
	for p := range all {
		all[p] = p
	}
	a.owns.Store(true)
	if a.handler != nil {
		a.handler.Gain(ctx, all)
	}
	<-ctx.Done()
	a.owns.Store(false)
	if a.handler != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.patience)
		defer cancel()
		a.handler.Lose(ending, all, a.end)
	}
	a.end(all)
	return nil
}

// end ends the contexts of partitions.
func (a *Alone) end(partitions []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range partitions {
		a.users.end(p)
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Alone) NeedLeaderElection() bool { return true }

// Owns says whether the work of partition p may be done here.
func (a *Alone) Owns(p int) bool { return inRange(p) && a.owns.Load() }

// ProcessGone is false: with leader election run locks end by their TTL.
func (*Alone) ProcessGone(string) bool { return false }

// While is a context that ends with ctx, or with the cause ErrNotOwned when the work of p must end.
func (a *Alone) While(ctx context.Context, p int) (context.Context, context.CancelFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.users.add(ctx, &a.mu, p, a.Owns(p))
}

func inRange(p int) bool { return p >= 0 && p < Partitions }

// users are the contexts under which partitions are worked on. They need the mutex of their owner.
type users map[int]map[*context.CancelCauseFunc]struct{}

// add makes a context that ends with ctx and with the partition; at once where it is not owned.
func (u users) add(ctx context.Context, mu *sync.Mutex, p int, owned bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if !owned {
		cancel(ErrNotOwned)
		return ctx, func() {}
	}
	if u[p] == nil {
		u[p] = map[*context.CancelCauseFunc]struct{}{}
	}
	u[p][&cancel] = struct{}{}
	return ctx, func() {
		cancel(nil)
		mu.Lock()
		defer mu.Unlock()
		delete(u[p], &cancel)
	}
}

// end ends the contexts of a partition.
func (u users) end(p int) {
	for cancel := range u[p] {
		(*cancel)(ErrNotOwned)
	}
	delete(u, p)
}
