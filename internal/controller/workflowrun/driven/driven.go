// SPDX-License-Identifier: Apache-2.0

// Package driven is which runs this process drives.
//
// Example: two replicas share the runs, each those of 32 partitions. An event of a run wakes it in
// the replica that drives it; the other ignores the event. When partition 7 moves, its runs end
// their passes here (End waits for that) before they begin anywhere else.
//
//	ownership --- Begin, End ---> Partitions <--- Enter, Early, Drives --- passes, events
//
// It says what this process was told, and no more: that no other process drives the same runs is a
// matter of internal/ownership, and that it would do no harm one of run locks and fences.
package driven

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ErrHandedOver is the cause with which a context of Early ends. The next owner of the run, or of
// what else is driven by partition, makes another pass.
var ErrHandedOver = errors.New("what it drives is handed over")

// owner says what this process owns now; *ownership.Keeper does.
type owner interface {
	// Owns says whether the work of a partition may be begun at this moment: a process that was
	// paused may have been replaced.
	Owns(partition int) bool
	// While is a context that ends when the work of a partition must.
	While(ctx context.Context, partition int) (context.Context, context.CancelFunc)
}

// Partitions are the partitions whose runs this process drives. Safe for concurrent use.
type Partitions struct {
	clock clock.PassiveClock
	owner owner

	mu    sync.Mutex
	parts [protocol.Partitions]part
}

// part is what is known of one partition.
type part struct {
	since  time.Time                         // zero: it is not driven
	early  map[*context.CancelCauseFunc]bool // ends what passes under way wait for
	passes int
	late   bool         // the passes under way outlasted End
	idle   []chan<- int // told the partition when its last pass ends; none blocks
}

// New makes Partitions of which none is driven yet.
func New(c clock.PassiveClock, o owner) *Partitions { return &Partitions{clock: c, owner: o} }

// Begin has the runs of partitions driven from now on.
func (p *Partitions) Begin(partitions []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range partitions {
		p.parts[n].late = false // they are passes of the owner again
		if p.parts[n].since.IsZero() {
			p.parts[n].since = p.clock.Now()
		}
	}
}

// End lets no more passes begin over runs of partitions, and calls ended with those over whose runs
// none is under way: with most at once, and with the others as their last passes end, so that a
// pass which takes long keeps its own partition only. It returns the late ones, whose passes had
// not ended when ctx did: see Enter.
func (p *Partitions) End(ctx context.Context, partitions []int, ended func([]int)) (late []int) {
	idle, busy, told := p.end(partitions)
	if len(idle) > 0 {
		ended(idle)
	}
	for len(busy) > 0 {
		select {
		case n := <-told:
			delete(busy, n)
			ended([]int{n})
		case <-ctx.Done():
			return p.outlasted(busy)
		}
	}
	return nil
}

// end ends partitions, and says over the runs of which no pass is under way. Those that are busy
// are told when their last pass has ended.
func (p *Partitions) end(partitions []int) (idle []int, busy map[int]bool, told <-chan int) {
	tell := make(chan int, len(partitions)) // each is told once
	busy = map[int]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range partitions {
		at := &p.parts[n]
		at.since = time.Time{}
		for end := range at.early {
			(*end)(ErrHandedOver)
		}
		if at.passes == 0 {
			idle = append(idle, n)
			continue
		}
		busy[n] = true
		at.idle = append(at.idle, tell)
	}
	return idle, busy, tell
}

// outlasted notes that the passes which are under way are late, unless their partition was begun
// again meanwhile.
func (p *Partitions) outlasted(busy map[int]bool) (late []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range busy {
		at := &p.parts[n]
		at.late = at.passes > 0 && at.since.IsZero()
		late = append(late, n)
	}
	slices.Sort(late)
	return late
}

// Enter begins a pass over a run; not ok: this process does not drive it. The context ends when the
// pass may write no more. The caller calls leave when the pass has ended. It says whether the pass
// was late: what the process knew of the run was forgotten before, and the caller forgets what the
// pass has noted since.
func (p *Partitions) Enter(ctx context.Context, run types.UID) (while context.Context, leave func() (late bool), ok bool) {
	n := protocol.Partition(string(run))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parts[n].since.IsZero() || !p.owner.Owns(n) {
		return ctx, nil, false
	}
	p.parts[n].passes++
	while, cancel := p.owner.While(ctx, n)
	return while, func() bool {
		cancel()
		return p.left(n)
	}, true
}

// Early is for what a pass waits for though its run may be handed over without it, and for passes
// that can end between two calls: it ends with ctx, or once the run is to be handed over. The
// caller calls cancel when the pass has ended.
func (p *Partitions) Early(ctx context.Context, run types.UID) (early context.Context, cancel func()) {
	early, end := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &p.parts[protocol.Partition(string(run))]
	if at.since.IsZero() {
		end(ErrHandedOver)
		return early, func() {}
	}
	if at.early == nil {
		at.early = map[*context.CancelCauseFunc]bool{}
	}
	at.early[&end] = true
	return early, func() {
		end(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(at.early, &end)
	}
}

func (p *Partitions) left(n int) (late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &p.parts[n]
	at.passes--
	if at.passes == 0 {
		for _, tell := range at.idle {
			tell <- n
		}
		at.idle = nil
	}
	return at.late
}

// Part is how many of all partitions this process drives.
func (p *Partitions) Part() (driven, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.parts {
		if !p.parts[i].since.IsZero() {
			driven++
		}
	}
	return driven, len(p.parts)
}

// Drives says whether this process drives a run.
func (p *Partitions) Drives(run types.UID) bool {
	return !p.Since(run).IsZero()
}

// Since is when this process began to drive a run; zero: it does not.
func (p *Partitions) Since(run types.UID) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts[protocol.Partition(string(run))].since
}
