// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// checkpointParallel bounds the runs that are written at the same time when a process
// gives them up.
const checkpointParallel = 16

// errNotWritten is why a run stays ahead of which the pass did not write, and went on without an
// error: it has no lease, or a decision lacks something.
var errNotWritten = errors.New("its last pass did not write it")

// Checkpoint writes all runs that are ahead of their status, before this process ends. No pass
// begins after it.
func (r *Reconciler) Checkpoint(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	_, all, _ := split(protocol.AllPartitions())
	if err := r.Driven.End(ctx, protocol.AllPartitions()); err != nil {
		log.FromContext(ctx).Info("Runs stay ahead of their status: another process decides again", "cause", err.Error())
		return
	}
	r.checkpoint(ctx, all)
}

// checkpoint writes the runs of partitions that are ahead, until ctx ends. No pass over them may be
// under way, nor begin. What is not written is decided again by whoever drives the runs next.
func (r *Reconciler) checkpoint(ctx context.Context, of map[int]bool) {
	r.closing.Lock()
	defer r.closing.Unlock()
	var group errgroup.Group
	group.SetLimit(checkpointParallel)
	keys := r.Ahead.In(of)
	for i, key := range keys {
		if ctx.Err() != nil {
			log.FromContext(ctx).Info("Runs stay ahead of their status: another process decides again", "runs", len(keys)-i, "cause", context.Cause(ctx).Error())
			break
		}
		group.Go(func() error {
			if err := r.checkpointRun(ctx, key); err != nil {
				log.FromContext(ctx).Info("A run stays ahead of its status: another process decides again", "run", key, "cause", err.Error())
			}
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// checkpointRun writes one run. Its write ends when ctx does: the partition does not wait for it.
func (r *Reconciler) checkpointRun(ctx context.Context, key types.NamespacedName) error {
	while, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(fmt.Errorf("%w: %w", ownership.ErrNotOwned, context.Cause(ctx))) })()
	run, err := r.read(ctx, key)
	if err != nil || run == nil {
		return err
	}
	p, err := r.observe(ctx, run)
	if err != nil {
		return err
	}
	defer p.desk.StandUp()
	if !p.ahead.Lags() {
		return nil
	}
	p.while, p.ahead.Closes = while, true
	if _, err = p.advance(ctx); err == nil && p.ahead.Lags() {
		return errNotWritten
	}
	return err
}
