// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// OrphanTick is how often parked results look for their run, beside when runs are seen.
	OrphanTick = time.Second
	// OrphanPatience is how long the cache may lag before the API server is asked.
	OrphanPatience = 3 * time.Second
	// ListPause is the least time between two live lists.
	ListPause = 5 * time.Second
	// listPart is the part of the time, one in so many, that lists take at most: they read all runs
	// there are, for the sake of results which are to be dropped as a rule.
	listPart = 20
	// maxPause bounds the pause after one all the same: what waits takes up room.
	maxPause = time.Minute
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
	pause    time.Duration // until the next list, if that is more than ListPause
}

func newOrphans(r *Router) *Orphans {
	return &Orphans{router: r, parked: NewInbox(orphanLimit, orphanBytes)}
}

// Backlog says what waits for its run to be known.
func (s *Orphans) Backlog() Backlog { return s.parked.Backlog() }

func (s *Orphans) park(ctx context.Context, l *Pending) {
	s.arrived(ctx, l, s.parked.Put("", types.UID(l.Fact.ID.RunUID), l))
}

// arrived does what follows when a result was parked, or found no room.
func (s *Orphans) arrived(ctx context.Context, l *Pending, parked bool) {
	if !parked {
		s.router.refuse(ctx, l, max(ListPause, s.parked.ReturnAfter("", l, s.router.Clock.Now())), errUnknownRun)
		return
	}
	s.Known(ctx, types.UID(l.Fact.ID.RunUID)) // it may have been seen since it was looked for
}

// Known delivers the results that came before their run was seen, if it was. Whoever saw a new run
// calls it: a process that begins gets results of runs that its watch tells of a moment later, and
// until the next look at all of them is long for a run.
func (s *Orphans) Known(ctx context.Context, uid types.UID) {
	key, ok := s.router.Index.Find(uid)
	if !ok {
		return
	}
	put, full := s.router.move(key, uid)
	for _, l := range put {
		s.router.entered(ctx, key, l)
	}
	for _, l := range full {
		s.router.noRoom(ctx, key, l)
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
	if old == 0 || now.Sub(s.lastList) < max(ListPause, s.pause) {
		return nil
	}
	existing, err := LiveRuns(ctx, s.router.Live)
	s.lastList = s.router.Clock.Now()
	s.pause = min(listPart*s.lastList.Sub(now), maxPause)
	if err != nil {
		return err
	}
	for _, uid := range s.parked.Runs() {
		if _, exists := existing[uid]; exists {
			continue // the cache will know it
		}
		if s.drop(ctx, uid, now) > 0 {
			s.router.Index.NoteGone(uid) // it was there once: the operator had given its jobs tokens
		}
	}
	return nil
}

// drop acks the results of a run that is gone, and says how many. What came after a time, when that
// was known or a list began, stays.
func (s *Orphans) drop(ctx context.Context, uid types.UID, until time.Time) int {
	gone := slices.DeleteFunc(s.parked.Waiting(uid), func(l *Pending) bool { return l.Since.After(until) })
	s.parked.Remove(uid, gone)
	s.router.Settler.settleAll(ctx, stale(gone))
	return len(gone)
}

// deliverKnown delivers what it can. It acks what has waited long enough for a run that is known to
// be gone, and returns how many others have waited long enough to ask the API server.
func (s *Orphans) deliverKnown(ctx context.Context, now time.Time) (old int) {
	until := now.Add(-OrphanPatience)
	for _, uid := range s.parked.Runs() {
		s.Known(ctx, uid)
		if s.router.Index.Gone(uid) {
			s.drop(ctx, uid, until)
			continue
		}
		for _, l := range s.parked.Waiting(uid) {
			if !l.Since.After(until) {
				old++
			}
		}
	}
	return old
}
