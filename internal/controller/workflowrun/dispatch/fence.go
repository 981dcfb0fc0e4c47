// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// FencePatience is how long the first write of a new holder waits for NATS, which does not answer.
// Then the run goes on: its cancel and its deadlines matter more than that an earlier holder,
// paused all the while, may publish once more.
const FencePatience = time.Minute

// Fence ends what earlier holders may still be about to publish, before this process writes a
// run that another one wrote last: each attempt in flight begins a new epoch with NATS, under
// the fence of the write. It comes before the write, since after it an answer may be applied
// and acknowledged, and then nothing but its epoch tells a late publish from a first one.
// Nothing is asked where this process wrote last, under the lease that is named: ordinary work
// has no such requests.
func (s *Session) Fence(ctx context.Context, run *v1alpha1.WorkflowRun, ours string, fence int64) error {
	if _, writer := leases.FenceOf(run); writer == ours {
		return nil
	}
	return s.FenceAll(ctx, lifecycle.Outlines(run), fence)
}

// FenceAll begins a new epoch of attempts under a fence: of those in flight, and of those that
// another may have dispatched ahead of status.
func (s *Session) FenceAll(ctx context.Context, list []lifecycle.Job, fence int64) error {
	var (
		mu     sync.Mutex
		failed atomic.Bool
		group  errgroup.Group
	)
	if s.epochs == nil {
		s.epochs = map[protocol.JobID]uint64{}
	}
	group.SetLimit(publishParallel)
	for _, j := range list {
		group.Go(func() error {
			if failed.Load() {
				return nil
			}
			epoch, err := s.all.Jobs.Fence(ctx, jobs.Job{ID: j.ID, Topic: j.Topic, Deadline: j.Deadline, Fence: fence})
			if err != nil {
				failed.Store(true)
				return fmt.Errorf("fence job %s: %w", j.ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			s.epochs[j.ID] = epoch
			return nil
		})
	}
	err := group.Wait()
	if err == nil {
		s.unfencedSince = time.Time{}
	}
	return err
}

// GoesOn says whether a run is written though its attempts could not be fenced: when NATS did not
// answer for too long.
func (s *Session) GoesOn(ctx context.Context, cause error) bool {
	now := s.all.Clock.Now()
	if s.unfencedSince.IsZero() {
		s.unfencedSince = now
	}
	if now.Sub(s.unfencedSince) < FencePatience {
		return false
	}
	log.FromContext(ctx).Info("A run that another process wrote goes on though NATS cannot be told", "cause", cause.Error())
	return true
}

// FenceForced is Fence for an end that is written without the lock. It does not wait: what cannot
// be fenced may be published once more by whoever has the lock, and has no effect.
func (s *Session) FenceForced(ctx context.Context, run *v1alpha1.WorkflowRun, ours string, d lifecycle.Decision) {
	if stored, _ := leases.FenceOf(run); d.Status.Fence == nil || *d.Status.Fence <= stored {
		return // no attempt ends by it
	}
	if err := s.Fence(ctx, run, ours, *d.Status.Fence); err != nil {
		log.FromContext(ctx).Info("The end of a run is written though not all of its jobs are fenced", "cause", err.Error())
	}
}
