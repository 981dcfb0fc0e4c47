// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// checkpointParallel bounds the runs that are written at the same time when a process
// gives them up.
const checkpointParallel = 16

// errNotWritten is why a run stays ahead of which the pass did not write, and went on without an
// error: it has no lease, or a decision lacks something.
var errNotWritten = errors.New("its last pass did not write it")

// closing is what bounds checkpoints. The zero value is ready for use.
type closing struct {
	parts  [protocol.Partitions]sync.Mutex // one checkpoint of a partition at a time
	once   sync.Once
	places *shares.Shares // of checkpointParallel
}

// place waits for a place for a run of a namespace.
func (c *closing) place(ctx context.Context, namespace string) (done func(), err error) {
	c.once.Do(func() { c.places = shares.New(checkpointParallel, false, shares.KindMetrics{}) })
	return c.places.Wait(ctx, namespace) //nolint:wrapcheck // of this package, as it were
}

// Checkpoint writes all runs that are ahead of their status, before this process ends. No pass
// begins after it.
func (r *Reconciler) Checkpoint(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	var all sync.WaitGroup
	late := r.Driven.End(ctx, protocol.AllPartitions(), func(idle []int) {
		all.Go(func() { r.checkpoint(ctx, idle) })
	})
	if len(late) > 0 {
		log.FromContext(ctx).Info("Runs stay ahead of their status: another process decides again", "partitions", late)
	}
	all.Wait()
}

// checkpoint writes the runs of partitions that are ahead, until ctx ends. No pass over them may be
// under way, nor begin. What is not written is decided again by whoever drives the runs next.
func (r *Reconciler) checkpoint(ctx context.Context, partitions []int) {
	var all sync.WaitGroup
	for _, n := range partitions {
		all.Go(func() { r.checkpointPartition(ctx, n) })
	}
	all.Wait()
}

func (r *Reconciler) checkpointPartition(ctx context.Context, n int) {
	r.closing.parts[n].Lock()
	defer r.closing.parts[n].Unlock()
	var all sync.WaitGroup
	var left atomic.Int64
	for _, key := range r.Ahead.In(map[int]bool{n: true}) {
		all.Go(func() {
			done, err := r.closing.place(ctx, key.Namespace)
			if err != nil {
				left.Add(1)
				return
			}
			defer done()
			if err := r.checkpointRun(ctx, key); err != nil {
				log.FromContext(ctx).Info("A run stays ahead of its status: another process decides again", "run", key, "cause", err.Error())
			}
		})
	}
	all.Wait()
	if left.Load() > 0 {
		log.FromContext(ctx).Info("Runs stay ahead of their status: another process decides again", "runs", left.Load(), "cause", context.Cause(ctx).Error())
	}
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
