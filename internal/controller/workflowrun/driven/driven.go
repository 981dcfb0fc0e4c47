// SPDX-License-Identifier: Apache-2.0

// Package driven is which runs this process drives.
//
// Example: two replicas share the runs, each those of 32 partitions. An event of a run wakes it in
// the replica that drives it; the other ignores the event. When partition 7 moves, its runs end
// their passes here (End waits for that) before they begin anywhere else.
//
//	ownership --- Begin, End ---> Partitions <--- Enter, Drives --- passes, events
//
// It says what this process was told, and no more: that no other process drives the same runs is a
// matter of internal/ownership, and that it would do no harm one of run locks and fences.
package driven

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ErrPassesLast is returned by End when passes did not end in time.
var ErrPassesLast = errors.New("passes over runs go on")

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
	since  time.Time // zero: it is not driven
	passes int
	late   bool          // the passes under way outlasted End
	idle   chan struct{} // closed when the last pass ends; nil: nobody waits for that
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

// End lets no more passes begin over runs of partitions, and waits for those under way. Those that
// have not ended when ctx does are late: see Enter.
func (p *Partitions) End(ctx context.Context, partitions []int) error {
	p.mu.Lock()
	var waits []chan struct{}
	for _, n := range partitions {
		at := &p.parts[n]
		at.since = time.Time{}
		if at.passes > 0 {
			if at.idle == nil {
				at.idle = make(chan struct{})
			}
			waits = append(waits, at.idle)
		}
	}
	p.mu.Unlock()
	for _, idle := range waits {
		select {
		case <-idle:
		case <-ctx.Done():
			p.outlasted(partitions)
			return fmt.Errorf("%w: %w", ErrPassesLast, context.Cause(ctx))
		}
	}
	return nil
}

// outlasted notes that the passes which are under way are late, unless their partition was begun
// again meanwhile.
func (p *Partitions) outlasted(partitions []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range partitions {
		at := &p.parts[n]
		at.late = at.passes > 0 && at.since.IsZero()
	}
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

func (p *Partitions) left(n int) (late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &p.parts[n]
	at.passes--
	if at.passes == 0 && at.idle != nil {
		close(at.idle)
		at.idle = nil
	}
	return at.late
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
