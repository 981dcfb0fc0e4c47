// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// feeds take the results of partitions; *busresults.Consumer does.
type feeds interface {
	Follow(partitions ...int)
	// TakeOver is Follow where whoever did so before is gone.
	TakeOver(partitions ...int)
	// Leave returns once all that is unsettled was given back.
	Leave(ctx context.Context, partitions ...int) error
}

// Handover begins and ends the work on the runs of partitions, and the work that is done once in an
// installation. It is what ownership calls, also for different partitions at the same time.
type Handover struct {
	Runs   *Reconciler
	Feeds  feeds
	Router *results.Router
	// Gained, if set, wakes what else is driven by partition.
	Gained func(partitions map[int]bool)
	// Once are the parts that run in one replica. Each can be started again after it ended.
	Once []manager.Runnable

	once oneTime
}

// Gain begins the work of partitions: their runs are woken, and their results are taken.
func (h *Handover) Gain(ctx context.Context, partitions []int) {
	h.begin(ctx, partitions, h.Feeds.Follow)
}

// TakeOver is Gain for partitions whose owner is gone: what it had not settled is
// delivered at once.
func (h *Handover) TakeOver(ctx context.Context, partitions []int) {
	h.begin(ctx, partitions, h.Feeds.TakeOver)
}

func (h *Handover) begin(ctx context.Context, partitions []int, follow func(...int)) {
	runs, once := split(partitions)
	of := setOf(runs)
	if len(runs) > 0 {
		h.Runs.Desks.TakeOver()
	}
	h.Runs.Driven.Begin(runs)
	follow(runs...)
	wakeAdopted(h.Runs.Waker, h.Runs.Index.Adopted(of))
	for _, key := range h.Runs.Index.Adopt(of) { // whoever drove them may have ended before it cleaned up
		h.Runs.Waker.Wake(key)
	}
	if h.Gained != nil {
		h.Gained(of)
	}
	if once {
		h.once.start(ctx, h.Runs.Clock, h.Once)
	}
}

const (
	// resultsFirst is how long runs under way wait for their pass at a new owner: a result that
	// waits comes sooner and has one made, which would else be their second.
	resultsFirst = 20 * time.Millisecond
	// endedLater is how long runs that have ended wait: all that they need is what their owner may
	// have left of their clean-up, and in the line of their tenant they stood before its live runs.
	endedLater = time.Second
	// endedEvery is the time between two of those, of which there may be tens of thousands.
	endedEvery = time.Millisecond
)

// wakeAdopted has passes made over the runs that this process drives from now on.
func wakeAdopted(w *Waker, runs results.Adopted) {
	for _, key := range runs.Waiting {
		w.Wake(key)
	}
	for _, key := range runs.Running {
		w.WakeAfter(key, resultsFirst)
	}
	for i, key := range runs.Ended {
		w.WakeAfter(key, endedLater+time.Duration(i)*endedEvery)
	}
}

// Lose ends the work of partitions, and calls ended with those of which it has: no pass over their
// runs is under way, their leases are given back, and NATS has their unsettled results. A partition
// does not wait for passes, last writes or results of another. When ctx ends, the rest ends with
// the time-outs of Redis and NATS.
func (h *Handover) Lose(ctx context.Context, partitions []int, ended func([]int)) {
	runs, once := split(partitions)
	var all sync.WaitGroup
	defer all.Wait()
	if once {
		all.Go(func() {
			h.once.stop(ctx)
			if ctx.Err() == nil {
				ended([]int{ownership.Singletons})
			}
		})
	}
	known := h.Runs.Index.In(setOf(runs)) // those that are deleted from now on are another's, and out of it
	late := h.Runs.Driven.End(ctx, runs, func(idle []int) {
		for _, some := range h.Runs.apart(idle) {
			all.Go(func() {
				h.Runs.checkpoint(ctx, some)
				h.leave(ctx, some, known, ended)
			})
		}
	})
	if len(late) > 0 {
		log.FromContext(ctx).Info("Runs are handed over in the middle of a pass: their locks keep others out for a while", "partitions", late)
		h.leave(ctx, late, known, func([]int) {})
	}
}

// leave gives back what this process has of the runs of partitions, and forgets them, and those
// that it knew when the hand-over began. Of each partition it calls ended when that is done, if ctx
// has not ended.
func (h *Handover) leave(ctx context.Context, partitions []int, before map[types.UID]types.NamespacedName, ended func([]int)) {
	of := setOf(partitions)
	mine := func(uid types.UID) bool { return of[protocol.Partition(string(uid))] }
	h.Runs.Leases.Cache.DropAll(ctx, mine)
	h.Runs.Dispatch.Leave(func(uid string) bool { return mine(types.UID(uid)) }) // also of runs that nobody knows any more
	known := map[int]map[types.UID]types.NamespacedName{}
	for _, runs := range []map[types.UID]types.NamespacedName{before, h.Runs.Index.In(of)} {
		for uid, key := range runs {
			n := protocol.Partition(string(uid))
			if known[n] == nil {
				known[n] = map[types.UID]types.NamespacedName{}
			}
			known[n][uid] = key
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { h.Runs.Leases.Leave(ctx, mine) })
	for _, n := range partitions {
		all.Go(func() {
			if err := h.Feeds.Leave(ctx, n); err != nil && ctx.Err() == nil { // else it goes on behind its back
				log.FromContext(ctx).Info("Results of runs that are handed over come again later", "partition", n, "cause", err.Error())
			}
			h.Router.Forget(map[int]bool{n: true})
			for uid, key := range known[n] {
				h.Runs.forget(uid, key)
			}
			if ctx.Err() == nil {
				ended([]int{n})
			}
		})
	}
}

// forget forgets what this process knows of a run that another one drives.
func (r *Reconciler) forget(uid types.UID, key types.NamespacedName) {
	r.memories.forgetIf(key, uid)
	r.Liveness.Forget(key)
	r.Signals.forget(key)
	r.Templates.Forget(key, uid)
	r.Slots.Forget(uid)
	r.Ahead.Forget(uid) // if it could not be written
	r.lists.forget(uid)
}

// split tells the partitions of runs from the work that is done once.
func split(partitions []int) (runs []int, once bool) {
	for _, p := range partitions {
		if p == ownership.Singletons {
			once = true
			continue
		}
		runs = append(runs, p)
	}
	return runs, once
}

func setOf(partitions []int) map[int]bool {
	of := map[int]bool{}
	for _, p := range partitions {
		of[p] = true
	}
	return of
}

// oneTime is the work that is done once in an installation, while this replica does it.
type oneTime struct {
	mu    sync.Mutex
	end   context.CancelFunc // nil: it is not done here
	ended chan struct{}      // closed when the parts that were started last have ended; nil: none were
}

// partPause is the wait before a part that failed is started again.
const partPause = time.Second

// start has the parts begin, and does not wait for that: those that outlasted stop end first, as no
// part may run twice.
func (o *oneTime) start(ctx context.Context, c clock.Clock, parts []manager.Runnable) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end != nil {
		return
	}
	ctx, o.end = context.WithCancel(context.WithoutCancel(ctx))
	before, ended := o.ended, make(chan struct{})
	o.ended = ended
	go func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		var all sync.WaitGroup
		for _, part := range parts {
			all.Go(func() { keepRunning(ctx, c, part) })
		}
		all.Wait()
	}()
}

// keepRunning starts a part again when it fails.
func keepRunning(ctx context.Context, c clock.Clock, part manager.Runnable) {
	for ctx.Err() == nil {
		if err := part.Start(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "A part is started again", "delay", partPause)
		}
		select {
		case <-ctx.Done():
		case <-c.After(partPause):
		}
	}
}

// stop returns once all parts have ended, or ctx has.
func (o *oneTime) stop(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end == nil {
		return
	}
	o.end()
	o.end = nil
	select {
	case <-o.ended:
	case <-ctx.Done():
	}
}
