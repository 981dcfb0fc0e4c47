// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// checkpointParallel bounds the runs that are written at the same time when a process gives them
// up. Namespaces share it: none has more than half.
const checkpointParallel = 16

// largePatience is how long a large run waits for its turn to be written: the runs of all tenants
// in its partition wait with it, and there may be one such run in each partition.
const largePatience = 200 * time.Millisecond

// errManyLarge is why a large run stays ahead of which the turn did not come in time.
var errManyLarge = errors.New("it is large, and so are many others that are written now")

// errNotWritten is why a run stays ahead of which the pass did not write, and went on without an
// error: it has no lease, or a decision lacks something.
var errNotWritten = errors.New("its last pass did not write it")

// closing is what bounds checkpoints. The zero value is ready for use.
type closing struct {
	once   sync.Once
	parts  [protocol.Partitions]chan struct{} // one checkpoint of a partition at a time
	places *shares.Shares                     // of checkpointParallel
}

func (c *closing) begin() {
	c.places = shares.New(checkpointParallel, true, shares.KindMetrics{})
	for n := range c.parts {
		c.parts[n] = make(chan struct{}, 1)
	}
}

// enter waits until no other checkpoint of a partition is under way.
func (c *closing) enter(ctx context.Context, n int) (leave func(), err error) {
	c.once.Do(c.begin)
	select {
	case c.parts[n] <- struct{}{}:
		return func() { <-c.parts[n] }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another checkpoint: %w", context.Cause(ctx))
	}
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
	leave, err := r.closing.enter(ctx, n)
	if err != nil {
		log.FromContext(ctx).Info("Runs stay ahead of their status: another process decides again", "partition", n, "cause", err.Error())
		return
	}
	defer leave()
	var all sync.WaitGroup
	keys := r.Ahead.In(map[int]bool{n: true})
	left := make(chan error, len(keys)) // why runs are not written
	for _, key := range keys {
		all.Go(func() {
			done, err := r.place(ctx, key)
			if err != nil {
				left <- err
				return
			}
			defer done()
			if err := r.checkpointRun(ctx, key); err != nil {
				log.FromContext(ctx).Info("A run stays ahead of its status: another process decides again", "run", key, "cause", err.Error())
			}
		})
	}
	all.Wait()
	if n := len(left); n > 0 {
		log.FromContext(ctx).Info("Runs stay ahead of their status: another process decides again", "runs", n, "cause", (<-left).Error())
	}
}

// place waits for one of the places for checkpoints.
func (r *Reconciler) place(ctx context.Context, key types.NamespacedName) (done func(), err error) {
	if m := r.memories.peek(key); m != nil && shares.LargeObject(m.lastWriteBytes) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, largePatience, errManyLarge)
		defer cancel()
	}
	done, err = r.closing.places.Wait(ctx, key.Namespace)
	if err == nil && ctx.Err() != nil {
		done()
		return nil, context.Cause(ctx)
	}
	return done, err
}

// apart divides partitions into those in which no run is ahead of its status, and each of the
// others by itself: what there is to write there keeps no other.
func (r *Reconciler) apart(partitions []int) (groups [][]int) {
	var written []int
	ahead := r.Ahead.Partitions()
	for _, n := range partitions {
		if ahead[n] {
			groups = append(groups, []int{n})
			continue
		}
		written = append(written, n)
	}
	if len(written) > 0 {
		groups = append(groups, written)
	}
	return groups
}

// handedOver is a context that has ended, as the next owner does what waits for that.
func handedOver(ctx context.Context) context.Context {
	ended, end := context.WithCancelCause(ctx)
	end(driven.ErrHandedOver)
	return ended
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
	p.desk.Until(handedOver(ctx)) // its partition would wait for a desk with it
	if _, err = p.advance(ctx); err == nil && p.ahead.Lags() {
		return errNotWritten
	}
	return err
}
