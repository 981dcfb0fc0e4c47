// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
)

const (
	// OrphanTick is how often parked results look for their run, beside when runs are seen.
	OrphanTick = time.Second
	// OrphanPatience is how long the cache may lag before the API server is asked.
	OrphanPatience = 3 * time.Second
	// ListPause is the least time between two live lists.
	ListPause = 5 * time.Second
	// orphanLimit and orphanBytes bound the parked results; more go back to NATS. A run has a share
	// of them: whose runs they are is not known, and somebody may send results of runs that are
	// gone for as long as he wants.
	orphanLimit = 1000
	orphanBytes = 16 << 20
)

var errUnknownRun = errors.New("the run is not known yet")

// Orphans holds results whose run is not in the cache. The cache may lag, so only a live list
// that began after the result came may say that the run does not exist; then the result is
// stale and acked.
type Orphans struct {
	router   *Router
	parked   *Inbox
	lastList time.Time
}

func newOrphans(r *Router) *Orphans {
	return &Orphans{router: r, parked: NewInbox(orphanLimit, orphanBytes)}
}

// Backlog says what waits for its run to be known.
func (s *Orphans) Backlog() Backlog { return s.parked.Backlog() }

func (s *Orphans) park(ctx context.Context, l *Pending) {
	uid := types.UID(l.Fact.ID.RunUID)
	if !s.parked.Put("", uid, l) {
		s.router.refuse(ctx, l, max(ListPause, s.parked.ReturnAfter("", l, s.router.Clock.Now())), errUnknownRun)
		return
	}
	s.Known(ctx, uid) // it may have been seen since it was looked for
}

// Known delivers the results that came before their run was seen, if it was. Whoever saw a new run
// calls it: a process that begins gets results of runs that its watch tells of a moment later, and
// until the next look at all of them is long for a run.
func (s *Orphans) Known(ctx context.Context, uid types.UID) {
	key, ok := s.router.Index.Find(uid)
	if !ok {
		return
	}
	for _, l := range s.parked.TakeAll(uid) {
		s.router.deliver(ctx, key, l)
	}
}

// Start looks after parked results until ctx ends. It runs where results are taken.
func (s *Orphans) Start(ctx context.Context) error {
	tick := s.router.Clock.NewTicker(OrphanTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			if err := s.Sort(ctx); err != nil {
				log.FromContext(ctx).Error(err, "Results of unknown runs keep waiting")
			}
		}
	}
}

// Sort delivers the results whose run is known by now, and acks those whose run is gone.
func (s *Orphans) Sort(ctx context.Context) error {
	now := s.router.Clock.Now()
	old := s.deliverKnown(ctx, now)
	if old == 0 || now.Sub(s.lastList) < ListPause {
		return nil
	}
	s.lastList = now
	existing, err := LiveRuns(ctx, s.router.Live)
	if err != nil {
		return err
	}
	for _, uid := range s.parked.Runs() {
		if _, exists := existing[uid]; exists {
			continue // the cache will know it
		}
		s.drop(ctx, uid, now)
	}
	return nil
}

// drop acks the results of a run that is gone. What came after the list began, which says nothing
// about its run, stays.
func (s *Orphans) drop(ctx context.Context, uid types.UID, began time.Time) {
	gone := slices.DeleteFunc(s.parked.Waiting(uid), func(l *Pending) bool { return l.Since.After(began) })
	s.parked.Remove(uid, gone)
	for _, l := range gone {
		s.router.Settler.Settle(ctx, l, l.Rejection(), busresults.OutcomeStale)
	}
}

// deliverKnown returns how many of the results left have waited long enough to ask the API server.
func (s *Orphans) deliverKnown(ctx context.Context, now time.Time) (old int) {
	for _, uid := range s.parked.Runs() {
		s.Known(ctx, uid)
		for _, l := range s.parked.Waiting(uid) {
			if now.Sub(l.Since) >= OrphanPatience {
				old++
			}
		}
	}
	return old
}
