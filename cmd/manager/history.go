// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/timeline"
)

// historyPause is the time between two looks at how far history went.
const historyPause = 10 * time.Second

// history notices an API server that is behind what its installation saw: Redis and NATS are then
// of runs that this API server does not know. It is used by one goroutine.
type history struct {
	api   client.Reader // reads live
	redis *store.Store
	clock clock.WithTicker
	log   logr.Logger

	seen   uint64 // by this process
	blind  bool   // the last look could not ask one of the two
	opaque bool   // the log has said that revisions are no numbers
}

// Start looks every historyPause until ctx ends.
//
// Errors: *timeline.BackError, which ends the process.
func (h *history) Start(ctx context.Context) error {
	tick := h.clock.NewTicker(historyPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		if err := h.lookAgain(ctx); err != nil {
			return err
		}
	}
}

// lookAgain is look for a process that began: to be unsure ends none.
//
// Errors: *timeline.BackError.
func (h *history) lookAgain(ctx context.Context) error {
	err := h.look(ctx)
	if errors.Is(err, timeline.ErrUnsure) {
		h.tell(err)
		return nil
	}
	return err
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys let runs in, too.
func (*history) NeedLeaderElection() bool { return false }

// look compares the revision of the API server with what this installation saw, and notes it. Where
// one of the two cannot be asked there is no verdict.
//
// Errors: *timeline.BackError, and timeline.ErrUnsure: a process must not begin on that.
func (h *history) look(ctx context.Context) error {
	mark, unasked := store.Revision(ctx, h.redis) // before the API server is asked: see timeline.Reach
	now, err := timeline.Reach(ctx, h.api, h.clock, max(mark, h.seen))
	if _, ok := errors.AsType[*timeline.BackError](err); ok || errors.Is(err, timeline.ErrUnsure) {
		return err
	}
	switch {
	case err == nil:
		h.seen = now
		unasked = errors.Join(unasked, store.RaiseRevision(ctx, h.redis, now))
	case errors.Is(err, timeline.ErrOpaque):
		h.tellOpaque(err)
	default:
		unasked = errors.Join(unasked, err)
	}
	h.tell(unasked)
	return nil
}

// tell logs what could not be asked, once until both can be.
func (h *history) tell(cause error) {
	if cause != nil && !h.blind {
		h.log.Info("Nobody knows whether history went back, trying on", "delay", historyPause, "cause", cause.Error())
	}
	h.blind = cause != nil
}

// tellOpaque logs once that there is nothing to compare.
func (h *history) tellOpaque(cause error) {
	if !h.opaque {
		h.log.Info("A restore from a backup is not noticed", "cause", cause.Error())
	}
	h.opaque = true
}
