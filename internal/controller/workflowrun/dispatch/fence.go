// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"slices"
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
// has no such requests. Ahead are attempts that another may have dispatched ahead of status: they
// are fenced in any case.
//
// What is fenced is remembered: where the time of one pass is too short for all, the next one goes
// on where it ended.
func (s *Session) Fence(ctx context.Context, run *v1alpha1.WorkflowRun, ours string, ahead []lifecycle.Job, fence int64) error {
	list := ahead
	if _, writer := leases.FenceOf(run); writer != ours {
		list = append(lifecycle.Outlines(run), ahead...)
	}
	missing := s.notFenced(run, list)
	err := s.fenceAll(ctx, s.withRoom(run, missing), fence)
	if err == nil && slices.ContainsFunc(missing, func(j lifecycle.Job) bool { _, has := s.epochs[j.ID]; return !has }) {
		err = errShareUsed
	}
	s.gate.fenced(err)
	if err == nil {
		s.unfencedSince = time.Time{}
	}
	return err
}

// stand is what an epoch is good for: a run that nobody has written since, in a NATS that has lost
// nothing. Who publishes has written before, so that nobody else can have published meanwhile; who
// wrote before has a lower fence, and begins no epoch after ours.
type stand struct {
	fence  int64
	writer string
	losses uint64
}

// fenced are the epochs that were begun for the write of a run.
type fenced struct {
	stand
	epochs map[protocol.JobID]uint64
}

// notFenced are those attempts of a run that begin an epoch, each once: the others have one.
func (s *Session) notFenced(run *v1alpha1.WorkflowRun, list []lifecycle.Job) []lifecycle.Job {
	is := stand{losses: s.losses}
	is.fence, is.writer = leases.FenceOf(run)
	if s.fenced.stand != is || s.fenced.epochs == nil {
		s.fenced = fenced{is, map[protocol.JobID]uint64{}}
	}
	s.epochs = s.fenced.epochs
	var missing []lifecycle.Job
	seen := map[protocol.JobID]bool{}
	for _, j := range list {
		if _, has := s.epochs[j.ID]; !has && !seen[j.ID] {
			missing = append(missing, j)
		}
		seen[j.ID] = true
	}
	return missing
}

// withRoom are those attempts whose fences find room in the share of the run. The runs of one
// namespace may have tens of thousands of attempts, most of which may wait for room themselves, and
// would fill the stream with fences: they go on without some of them, see FencePatience.
func (s *Session) withRoom(run *v1alpha1.WorkflowRun, missing []lifecycle.Job) []lifecycle.Job {
	room := s.all.Backlog.Fences()
	return slices.DeleteFunc(slices.Clone(missing), func(j lifecycle.Job) bool {
		return !room.Take(run.Namespace, j.ID, jobs.FenceBytes(jobs.Job{ID: j.ID, Topic: j.Topic}))
	})
}

// fenceAll begins a new epoch of attempts under a fence.
func (s *Session) fenceAll(ctx context.Context, list []lifecycle.Job, fence int64) error {
	var (
		mu     sync.Mutex
		failed atomic.Bool
		group  errgroup.Group
	)
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
	return group.Wait()
}

// GoesOn says whether a run is written though its attempts could not be fenced: when NATS did not
// answer for too long.
func (s *Session) GoesOn(ctx context.Context, cause error) bool {
	now := s.all.Clock.Now()
	if s.unfencedSince.IsZero() {
		s.unfencedSince = now
	}
	if now.Before(s.GoesOnAt()) {
		return false
	}
	log.FromContext(ctx).Info("A run that another process wrote goes on though NATS cannot be told", "cause", cause.Error())
	return true
}

// GoesOnAt is when GoesOn says so, of a run whose write it has put off.
func (s *Session) GoesOnAt() time.Time { return s.unfencedSince.Add(FencePatience) }

// FenceForced is Fence for an end that is written without the lock. It does not wait: what cannot
// be fenced may be published once more by whoever has the lock, and has no effect.
func (s *Session) FenceForced(ctx context.Context, run *v1alpha1.WorkflowRun, ours string, ahead []lifecycle.Job, d *lifecycle.Decision) {
	if stored, _ := leases.FenceOf(run); d.Status.Fence == nil || *d.Status.Fence <= stored {
		return // no attempt ends by it
	}
	if err := s.Fence(ctx, run, ours, ahead, *d.Status.Fence); err != nil {
		log.FromContext(ctx).Info("The end of a run is written though not all of its jobs are fenced", "cause", err.Error())
	}
}
