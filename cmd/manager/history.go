// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// historyPause is the time between two looks at how far history went.
	historyPause = 10 * time.Second
	// historyTimeout bounds one look.
	historyTimeout = 5 * time.Second
)

// history notices an API server that is behind what its installation saw: etcd was restored from a
// backup, or one of two clusters is a copy of the other. The UID of a cluster tells neither
// (ADR 64). Redis and NATS are then of runs that this API server does not know. It is used
// by one goroutine.
type history struct {
	api   client.Reader // reads live
	redis *store.Store
	clock clock.WithTicker
	log   logr.Logger

	seen   uint64 // by this process
	blind  bool   // the last look could not ask one of the two
	opaque bool   // the log has said that revisions are no numbers
}

// HistoryError says that the API server is at a lower revision than it was.
type HistoryError struct {
	Now  uint64 // the API server's
	Seen uint64 // by this installation
}

// Error implements error.
func (e *HistoryError) Error() string {
	return fmt.Sprintf("the API server is at revision %d, and this installation has seen %d: etcd was restored from a backup, or this cluster is a copy of "+
		"another one. A copy: cut it off from NATS and Redis. A restore: remove the streams of jobs and results and empty Redis, see docs/production.md, Backups",
		e.Now, e.Seen)
}

// Start looks every historyPause until ctx ends.
//
// Errors: *HistoryError, which ends the process.
func (h *history) Start(ctx context.Context) error {
	tick := h.clock.NewTicker(historyPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		if err := h.look(ctx); err != nil {
			return err
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys let runs in, too.
func (*history) NeedLeaderElection() bool { return false }

// look compares the revision of the API server with what this installation saw, and notes it. Where
// one of the two cannot be asked there is no verdict.
//
// Errors: *HistoryError.
func (h *history) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	// The mark comes first: whoever raised it had read the API server before this one does. The
	// other way round another replica could raise it in between, beyond what this one has read.
	mark, unasked := store.Revision(ctx, h.redis)
	now, err := h.revision(ctx)
	defer func() { h.tell(unasked, err) }()
	if now == 0 {
		return nil
	}
	if seen := max(mark, h.seen); now < seen {
		return &HistoryError{Now: now, Seen: seen}
	}
	h.seen = now
	unasked = errors.Join(unasked, store.RaiseRevision(ctx, h.redis, now))
	return nil
}

// tell logs what could not be asked, once until both can be.
func (h *history) tell(causes ...error) {
	cause := errors.Join(causes...)
	if cause != nil && !h.blind {
		h.log.Info("Nobody knows whether history went back, trying on", "delay", historyPause, "cause", cause.Error())
	}
	h.blind = cause != nil
}

// revision is that of the API server; 0: it is no number.
func (h *history) revision(ctx context.Context) (uint64, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LockPolicyList"))
	if err := h.api.List(ctx, list, client.Limit(1)); err != nil { // that names no version: the API server asks etcd
		return 0, fmt.Errorf("ask the API server for its revision: %w", err)
	}
	revision, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err == nil && revision > 0 {
		return revision, nil
	}
	if !h.opaque {
		h.log.Info("Revisions of the API server are no numbers: a restore from a backup is not noticed", "revision", list.ResourceVersion)
	}
	h.opaque = true
	return 0, nil
}
