// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// deskShare is the part of all cores, one in so many, that desks take together at most while
	// others want passes: what a pass does at its desk, the API server and NATS do as much for.
	deskShare = 8
	// Aside is how many passes over runs wait for desks, or work there, beside those for which
	// there are places for passes. Namespaces share it: one has half of it at most. Each has its
	// run in memory; the others that need a desk are in line by their names.
	Aside = 8
	// fewWait is how many may wait for desks, or be in line for a place aside, while those there
	// rest longer than they work: of more than that the last would wait for too long.
	fewWait = 3
	// maxDesks bounds the desks of a process, and so what all passes together hold of large
	// outputs: 24 MiB of text that was read, what is stored, and what is being read; some of it
	// decoded, which takes five times as much at most.
	maxDesks = 2
	// largeObject is from how many bytes on a run is written from a desk: of 200 steps a status
	// write takes some six times as long as of five.
	largeObject = 64 << 10
	// smallOutputs is how much a pass reads of outputs without a desk.
	smallOutputs = 256 << 10
	// maxRest bounds how long a desk stays empty after its use.
	maxRest = time.Second
	// workBetween is how long a pass works at its desk without a rest, where it can rest at all:
	// about as long as the scheduler lets a thread have a core that others want.
	workBetween = 4 * time.Millisecond
	// maxPause bounds a rest during work: what was waited for counts as work, too, and the run may
	// have its lock.
	maxPause = 10 * workBetween
	// maxStay is until when a pass may go on at its desk, from when it came, with what could be
	// left to the next one. The rest and the decision that begin then are beyond it.
	maxStay = time.Second
	// takingOver is how long desks are left empty by who begins to drive runs, if others want
	// passes: it has all runs to look at, and each is waited for by somebody.
	takingOver = time.Second
)

// ErrInLine says that a pass is to end as its run is in line for a place aside: it is woken.
var ErrInLine = errors.New("the run is in line for a desk")

// Room is how many desks there are, and how long a pass is idle for its work at one if others want
// passes: so many times as long.
type Room struct {
	Desks int
	Rest  float64
}

// RoomOfProcess is that of this process.
func RoomOfProcess() Room { return roomOn(runtime.GOMAXPROCS(0)) }

// roomOn leaves one core at least to passes that need no desk, if there are two, and all but an
// eighth while others want passes. On 16 cores nobody rests.
func roomOn(cores int) Room {
	desks := max(1, min(maxDesks, cores-1))
	return Room{Desks: desks, Rest: max(0, float64(deskShare*desks)/float64(cores)-1)}
}

// Desks are places for passes that do what takes long, or much memory. All other passes
// go past them.
type Desks struct {
	places *Shares
	rest   float64
	turns  *Turns
	clock  clock.WithDelayedExecution

	mu    sync.Mutex
	began time.Time // when the process began to drive runs for whose sake desks are left empty
}

// NewDesks makes desks. Turns says which tenants want passes.
func NewDesks(room Room, turns *Turns, c clock.WithDelayedExecution, m KindMetrics) *Desks {
	return &Desks{places: New(room.Desks, false, m), rest: room.Rest, turns: turns, clock: c}
}

// TakeOver says that the process begins to drive runs: desks are left empty for a moment, but not
// again and again while it takes over one partition after the other.
func (d *Desks) TakeOver() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.clock.Now(); now.Sub(d.began) >= 2*takingOver {
		d.began = now
	}
}

// yields is how long a pass of a tenant waits before it asks for a desk.
func (d *Desks) yields(tenant string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := takingOver - d.clock.Since(d.began); left > 0 && d.turns.Others(tenant, d.began) {
		return left
	}
	return 0
}

// Work gives a desk to work of a tenant that is no pass over a run: to validate a Workflow, say.
// What takes long is to rest now and then, as by Yield, and to leave at its end. The error says why
// ctx ended.
func (d *Desks) Work(ctx context.Context, tenant string) (rest func() bool, leave func(), err error) {
	desk := d.For(tenant)
	if err := desk.Need(ctx); err != nil {
		return nil, nil, err
	}
	return func() bool { return desk.Yield(ctx) }, desk.StandUp, nil
}

// Desk is what one pass of a tenant has to do with the desks.
type Desk struct {
	desks  *Desks
	tenant string
	until  context.Context //nolint:containedctx // ends what the pass waits for here; nil: nothing does
	pass   *Pass           // its place for passes; nil: it has none, or no other needs it
	mayEnd bool            // the next pass may begin anew with all that this one has begun
	inLine bool            // the pass is to end
	leave  func()          // nil: the pass has no desk
	came   time.Time       // when it sat down

	mu     sync.Mutex // what a pass does at the same time rests together
	worked time.Time  // since when it works without a rest
}

// For begins a pass of a tenant, which has no desk yet.
func (d *Desks) For(tenant string) *Desk { return &Desk{desks: d, tenant: tenant} }

// Until has the pass wait for a desk, and rest, no longer than until a context ends: as if that
// were the end of the pass.
func (d *Desk) Until(until context.Context) { d.until = until }

// From says which place for passes the pass has: it leaves that to others when it needs a desk. If
// there is no other place for it, it is to end, and its run is in line.
func (d *Desk) From(pass *Pass) { d.pass, d.mayEnd = pass, true }

// Stay has the pass wait for a desk where it is from now on: it has what the next pass would not
// get again, or what others wait for.
func (d *Desk) Stay() { d.mayEnd = false }

// InLine says that the pass is to end: its run is in line, and is woken.
func (d *Desk) InLine() bool { return d.inLine }

// StepAside has the pass leave its place before it needs a desk: who waits for one then has, say,
// the run's lock. Its error is ErrInLine.
func (d *Desk) StepAside() error {
	if !d.inLine && d.pass != nil {
		d.inLine = d.pass.stepAside(d.mayEnd)
	}
	if d.inLine {
		return ErrInLine
	}
	return nil
}

// Has says whether the pass has a desk.
func (d *Desk) Has() bool { return d.leave != nil }

// SitDown gives the pass a desk. It waits, off the run's lock and aside as a rule, until it is its
// tenant's turn, and the pass keeps the desk until StandUp. False: it has one already, the context
// ended, or the pass is InLine.
func (d *Desk) SitDown(ctx context.Context) bool {
	if d.leave != nil || d.StepAside() != nil {
		return false
	}
	waiting, cancel := d.bounded(ctx)
	defer cancel()
	if wait := d.desks.yields(d.tenant); wait > 0 {
		select {
		case <-d.desks.clock.After(wait):
		case <-waiting.Done():
			return false
		}
	}
	done, err := d.desks.places.Wait(waiting, d.tenant)
	if err != nil {
		return false // what the decision began is good; the rest is for the next pass
	}
	d.came = d.desks.clock.Now()
	d.worked, d.leave = d.came, done
	return true
}

// bounded is a context that ends with ctx, or when the pass is to wait no more.
func (d *Desk) bounded(ctx context.Context) (bounded context.Context, cancel func()) {
	bounded, end := context.WithCancelCause(ctx)
	if d.until == nil {
		return bounded, func() { end(nil) }
	}
	stop := context.AfterFunc(d.until, func() { end(context.Cause(d.until)) })
	return bounded, func() {
		stop()
		end(nil)
	}
}

// restDue is how long a desk is left empty, or its pass is idle, after work since d.worked: if
// others want passes, so many times as long as Room says.
func (d *Desk) restDue() time.Duration {
	if !d.desks.turns.Others(d.tenant, d.worked.Add(-maxRest)) {
		return 0
	}
	rest := d.desks.rest
	if d.desks.places.Waiting()+d.desks.turns.standInLine() > fewWait {
		rest = min(rest, 1)
	}
	return min(time.Duration(rest*float64(d.desks.clock.Since(d.worked))), maxRest)
}

// Rest is called now and then by what a pass does at its desk, by several at the same time, too.
// Whatever takes long gives its core to others in between, and not only at its end: they wait for
// milliseconds then.
func (d *Desk) Rest(ctx context.Context) {
	if d.leave == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.desks.clock.Since(d.worked) >= workBetween {
		d.pause(ctx, maxPause)
	}
}

// Yield is Rest for what may take many seconds, and has nothing large in memory. After a second at
// the desk it leaves that to who waits, and comes again when it is its tenant's turn. False: ctx,
// or Until, ended meanwhile, and it has no desk.
func (d *Desk) Yield(ctx context.Context) bool {
	switch {
	case d.leave == nil:
		return true
	case d.over(ctx):
		d.StandUp()
		return false
	}
	if d.desks.clock.Since(d.came) < maxStay || d.desks.places.Waiting() == 0 {
		d.Rest(ctx)
		return true
	}
	d.StandUp()
	return d.SitDown(ctx)
}

// over says whether the pass has no more time.
func (d *Desk) over(ctx context.Context) bool {
	return ctx.Err() != nil || d.until != nil && d.until.Err() != nil
}

// pause has the pass idle as restDue says, at most, if others want passes. The end of ctx,
// or of Until, ends it.
func (d *Desk) pause(ctx context.Context, most time.Duration) {
	bounded, cancel := d.bounded(ctx)
	defer cancel()
	if long := min(d.restDue(), most); long > 0 {
		select {
		case <-d.desks.clock.After(long):
		case <-bounded.Done():
			return
		}
	}
	d.worked = d.desks.clock.Now()
}

// GoOn says whether a pass with a desk may do more of what could be left to the next one. It rests
// first. A pass that goes on writes once for all that it did; who waits for the desk waits longer.
func (d *Desk) GoOn(ctx context.Context) bool {
	if d.leave == nil || d.desks.clock.Since(d.came) >= maxStay {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pause(ctx, maxRest)
	return !d.over(ctx)
}

// ForObject gives a desk to a pass that is about to write an object of so many bytes, if that is
// large. It is asked before the lock is taken: who waits then is in nobody's way.
func (d *Desk) ForObject(ctx context.Context, bytes int) error {
	if !LargeObject(bytes) {
		return nil
	}
	return d.Need(ctx)
}

// LargeObject says whether the write of an object of so many bytes takes long.
func LargeObject(bytes int) bool { return bytes > largeObject }

// Large says whether outputs of so many bytes need a desk.
func Large(bytes int64) bool { return bytes > smallOutputs }

// May says whether outputs of so many bytes may be in memory, or be read, as things are.
func (d *Desk) May(bytes int64) bool { return d.Has() || !Large(bytes) }

// ForOutputs makes sure that they may.
func (d *Desk) ForOutputs(ctx context.Context, bytes int64) error {
	if d.May(bytes) {
		return nil
	}
	return d.Need(ctx)
}

// Need gives a desk to a pass that cannot do without one. It waits for it as SitDown does. Its
// error is ErrInLine, or says why the context ended.
func (d *Desk) Need(ctx context.Context) error {
	bounded, cancel := d.bounded(ctx)
	defer cancel()
	switch {
	case d.leave != nil || d.SitDown(bounded):
		return nil
	case d.inLine:
		return ErrInLine
	}
	<-bounded.Done() // its cause is the reason
	return fmt.Errorf("wait for a desk: %w", context.Cause(bounded))
}

// StandUp gives the desk back, if the pass has one.
func (d *Desk) StandUp() {
	if d.leave == nil {
		return
	}
	if pause := d.restDue(); pause > 0 {
		d.desks.clock.AfterFunc(pause, d.leave)
	} else {
		d.leave()
	}
	d.leave = nil
}
