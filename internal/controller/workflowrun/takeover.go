package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// fencePatience is how long the first write of a new holder waits for NATS, which does not answer. Then the run goes on: its cancel and its
// deadlines matter more than that an earlier holder, paused all the while, may publish once more.
const fencePatience = time.Minute

// fence ends what earlier holders may still be about to publish, before this process writes a run that another one wrote last: each attempt
// in flight begins a new epoch with NATS, under the fence of the write. It comes before the write, since after it an answer may be
// applied and acknowledged, and then nothing but its epoch tells a late publish from a first one. Nothing is asked where this process
// wrote last: ordinary work has no such requests.
func (p *pass) fence(ctx context.Context, fence int64) error {
	if _, writer := fenceOf(p.run); writer == p.mem.writer {
		return nil
	}
	var mu sync.Mutex
	p.epochs = map[protocol.JobID]uint64{}
	err := parallel(publishParallel, lifecycle.Outlines(p.run), func(j lifecycle.Job) error {
		epoch, err := p.jobs.Fence(ctx, jobs.Job{ID: j.ID, Topic: j.Topic, Deadline: j.Deadline, Fence: fence})
		if err != nil {
			return fmt.Errorf("fence job %s: %w", j.ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		p.epochs[j.ID] = epoch
		return nil
	})
	if err == nil {
		p.mem.unfencedSince = time.Time{}
	}
	return err
}

// noteWriter remembers the lease under which a write was accepted.
func (p *pass) noteWriter() {
	if p.lease != nil {
		p.mem.writer = p.lease.ID()
	}
}

// unfenced says what becomes of a pass that could not fence: nil, it goes on.
func (p *pass) unfenced(ctx context.Context, lease *lockmgr.Lease, cause error) (*reconcile.Result, error) {
	if f, ok := errors.AsType[*jobs.FencedError](cause); ok {
		result, err := p.fencedOut(ctx, lease, f)
		return &result, err
	}
	now := p.clock.Now()
	if p.mem.unfencedSince.IsZero() {
		p.mem.unfencedSince = now
	}
	if now.Sub(p.mem.unfencedSince) < fencePatience {
		result := p.effectsAgain(ctx, cause)
		return &result, nil
	}
	log.FromContext(ctx).Info("A run that another process wrote goes on though NATS cannot be told", "cause", cause.Error())
	return nil, nil //nolint:nilnil // see above
}

// fencedOut ends the lease: NATS knows of a writer with a higher fence. If that one is the holder now, the lock or the API server says so;
// if not, say because its lock was lost, the next lease is taken above its fence.
func (p *pass) fencedOut(ctx context.Context, lease *lockmgr.Lease, cause *jobs.FencedError) (reconcile.Result, error) {
	p.metrics.fenceRejections.WithLabelValues("nats_fence").Inc()
	log.FromContext(ctx).Info("The lease ends: another has taken over", "cause", cause.Error())
	p.mem.floor = max(p.mem.floor, cause.By)
	result, err := p.refresh(ctx) // before the lease ends, and what is done under it
	lease.Drop(ctx)
	return result, err
}

// fenceForced is fence for an end that is written without the lock. It does not wait: what cannot be fenced may be published once more by
// whoever has the lock, and has no effect.
func (p *pass) fenceForced(ctx context.Context, d lifecycle.Decision) {
	if stored, _ := fenceOf(p.run); d.Status.Fence == nil || *d.Status.Fence <= stored {
		return // no attempt ends by it
	}
	if err := p.fence(ctx, *d.Status.Fence); err != nil {
		log.FromContext(ctx).Info("The end of a run is written though not all of its jobs are fenced", "cause", err.Error())
	}
}

// parallel does something for each of a list, several at a time, until one fails. The error is that of the first that did.
func parallel[T any](limit int, list []T, do func(T) error) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	slots := make(chan struct{}, limit)
	failure := func() error {
		mu.Lock()
		defer mu.Unlock()
		return failed
	}
	for _, x := range list {
		slots <- struct{}{}
		if failure() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(x); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = err
				}
			}
		})
	}
	wg.Wait()
	return failed
}
