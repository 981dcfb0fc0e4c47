// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/test/contend"
)

// How workers of the nemesis test spend their time.
const (
	sampleEvery  = 5 * time.Millisecond // while they hold a lock
	laggedWrites = 10                   // one of so many is sent a while after Lease.Err was asked
	lagAtMost    = 30 * time.Millisecond
	dropsOfTen   = 2
	writesAtMost = 3 // per lease
)

// job is a run, and how each child works on it.
type job struct {
	Run    string
	Policy policy.RunLock
	// Workers is how many goroutines contend.
	Workers int
	// Rest is the longest time that each of them rests between two takes.
	Rest time.Duration
	// LongHolds is of how many takes one is held for longer than the TTL.
	LongHolds int
}

// workArgs start the workers of a child.
type workArgs struct {
	Jobs []job
	Seed uint64
}

// crew are the workers of a child.
type crew struct {
	calm    atomic.Bool // no long holds any more
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu   sync.Mutex
	lost losses
}

// worker takes the lock of one run again and again, and does what the controller does: it reads,
// takes, checks and writes.
type worker struct {
	child *child
	name  string
	job   job
	rand  *rand.Rand

	asked   object        // what it read last
	askedAt time.Duration // before it asked for the lock
}

func (c *child) work(ctx context.Context, in workArgs) (none, error) {
	ctx, c.crew.cancel = context.WithCancel(ctx)
	for i, j := range in.Jobs {
		for n := range j.Workers {
			w := c.worker("worker-"+strconv.Itoa(n), j, in.Seed+uint64(100*i+n))
			c.crew.workers.Go(func() { w.run(ctx) })
		}
	}
	return none{}, nil
}

func (c *child) worker(name string, j job, seed uint64) *worker {
	return &worker{child: c, name: name, job: j, rand: rand.New(rand.NewPCG(seed, 0))}
}

// prove says, per job, after how long this child got the lock and could write. It needs no favours
// of the workers, but that they hold no lock for long.
func (c *child) prove(ctx context.Context, in workArgs) (map[string]time.Duration, error) {
	c.crew.calm.Store(true)
	var mu sync.Mutex
	var provers sync.WaitGroup
	started, took := instant(), map[string]time.Duration{}
	for _, j := range in.Jobs {
		w := c.worker("prover", j, in.Seed)
		provers.Go(func() {
			for ctx.Err() == nil && !w.cycle(ctx) {
			}
			mu.Lock()
			defer mu.Unlock()
			took[j.Run] = instant() - started
		})
	}
	provers.Wait()
	return took, context.Cause(ctx)
}

// report ends the workers and says what they lost.
func (c *child) report(context.Context, none) (report, error) {
	c.crew.cancel()
	c.crew.workers.Wait()
	families, err := c.registry.Gather()
	if err != nil {
		return report{}, err
	}
	counted := losses{}
	for _, family := range families {
		if family.GetName() != "syncopate_run_lock_abandoned_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "reason" {
					counted[label.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	c.crew.mu.Lock()
	defer c.crew.mu.Unlock()
	seen := losses{}
	maps.Copy(seen, c.crew.lost)
	return report{Seen: seen, Counted: counted}, nil
}

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.cycle(ctx)
		_ = contend.Wait(ctx, time.Duration(w.rand.Int64N(int64(w.job.Rest))), nil) // run ends
	}
}

// cycle is one take, and says whether a write was accepted.
func (w *worker) cycle(ctx context.Context) (wrote bool) {
	lease, err := contend.Acquire(ctx, w.child.manager, w.request)
	if err != nil {
		return false
	}
	_ = w.child.parent.notify("took", take{
		Run: w.job.Run, Child: w.child.config.Name, LeaseID: lease.ID(), Fence: lease.Fence(),
		Asked: w.asked, From: w.askedAt, To: instant(),
	})
	asked, refused := w.asked, false
	for range 1 + w.rand.IntN(writesAtMost) {
		w.hold(ctx, lease)
		v := w.write(ctx, lease, asked)
		wrote = wrote || v == accepted
		if refused = v.byFence(); v != accepted {
			break
		}
	}
	if refused || w.rand.IntN(10) < dropsOfTen {
		lease.Drop(ctx)
	} else {
		lease.Release(ctx)
	}
	w.noteLoss(lease)
	return wrote
}

// request reads the run anew for every try.
func (w *worker) request(ctx context.Context) (lockmgr.Request, error) {
	var err error
	if w.asked, err = w.child.readRun(ctx, w.job.Run); err != nil {
		return lockmgr.Request{}, err
	}
	w.askedAt = instant()
	return lockmgr.Request{
		RunUID: w.job.Run, Floor: w.asked.Fence, FloorLeaseID: w.asked.LeaseID, Policy: w.job.Policy, Waiter: w.name,
	}, nil
}

// hold works for a while, mostly a short one, until the lease is lost or the worker is to stop.
func (w *worker) hold(ctx context.Context, lease *lockmgr.Lease) {
	work := 5*time.Millisecond + time.Duration(w.rand.Int64N(int64(45*time.Millisecond)))
	long := w.rand.IntN(w.job.LongHolds) == 0
	if long {
		work = w.job.Policy.TTL*3/2 + time.Duration(w.rand.Int64N(int64(w.job.Policy.TTL)))
	}
	for end := instant() + work; instant() < end; {
		w.claim(lease)
		if (long && w.child.crew.calm.Load()) || ctx.Err() != nil || contend.Wait(lease.Context(), sampleEvery, nil) != nil {
			return
		}
	}
}

// claim tells whether the lease says that it has the lock. The fence is read before and after: it
// rises when a lock that was gone is taken again.
func (w *worker) claim(lease *lockmgr.Lease) {
	from, fence := instant(), lease.Fence()
	if lease.Err() != nil || lease.Status().Unlocked || lease.Fence() != fence {
		return
	}
	_ = w.child.parent.notify("claim", claim{
		Run: w.job.Run, Child: w.child.config.Name, LeaseID: lease.ID(), Fence: fence, From: from, To: instant(),
	})
}

// write writes under a lease. What the worker has read may be old by now, as the cache of a
// controller is: then it reads, and tries once more. Without a verdict the lease was over.
func (w *worker) write(ctx context.Context, lease *lockmgr.Lease, asked object) verdict {
	for range 2 {
		if lease.Err() != nil {
			return ""
		}
		if w.rand.IntN(laggedWrites) == 0 {
			_ = contend.Wait(ctx, time.Duration(w.rand.Int64N(int64(lagAtMost))), nil) // the call below ends
		}
		v, err := w.child.writeRun(ctx, write{
			Run: w.job.Run, LeaseID: lease.ID(), Fence: lease.Fence(), Version: w.asked.Version, Asked: asked,
		})
		if err != nil {
			return ""
		}
		if v == accepted {
			w.asked.Version++
		}
		if v != stale {
			return v
		}
		if w.asked, err = w.child.readRun(ctx, w.job.Run); err != nil {
			return ""
		}
	}
	return stale
}

// noteLoss counts a lease that was lost before it was ended.
func (w *worker) noteLoss(lease *lockmgr.Lease) {
	var lost *lockmgr.LostError
	if !errors.As(lease.Err(), &lost) {
		return
	}
	w.child.crew.mu.Lock()
	defer w.child.crew.mu.Unlock()
	if w.child.crew.lost == nil {
		w.child.crew.lost = losses{}
	}
	w.child.crew.lost[string(lost.Reason)]++
}
