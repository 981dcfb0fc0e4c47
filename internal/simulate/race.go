// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"container/heap"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/internal/policy"
)

// Load is who contends for one lock.
type Load struct {
	// Contenders each need the lock once; all come at the same moment.
	Contenders int
	// Processes share them evenly.
	Processes int
	// Hold is how long each has it.
	Hold time.Duration
	// RoundTrip is how long a command to Redis takes.
	RoundTrip time.Duration
}

// Outcome is what a policy makes of a load.
type Outcome struct {
	// Drain is when the last contender was done.
	Drain time.Duration
	// Commands were sent to Redis.
	Commands int
	// Waits are how long each contender waited for the lock, in the order in which they had it.
	Waits []time.Duration
}

// maxPasses is how often in a row a process passes the lock to its own contenders,
// as internal/lockmgr does.
const maxPasses = 10

// race is one simulation.
type race struct {
	load   Load
	lock   policy.RunLock
	rnd    func() float64
	now    time.Duration
	events events
	seq    int

	held    bool  // in Redis
	holder  int   // process that has it or is taking or giving it back
	inUse   []int // by process: its contenders that hold or take the lock
	waiting [][]int
	passes  int
	out     Outcome
}

// Race plays contenders of one lock under a policy. rnd is uniform in [0, 1).
func Race(load Load, lock policy.RunLock, rnd func() float64) Outcome {
	r := &race{load: load, lock: lock, rnd: rnd, inUse: make([]int, load.Processes), waiting: make([][]int, load.Processes)}
	for i := range load.Contenders {
		process := i % load.Processes
		r.at(time.Duration(i)*startGap, func() { r.try(process) })
	}
	for len(r.events) > 0 {
		e, _ := heap.Pop(&r.events).(event)
		r.now = e.at
		e.do()
	}
	return r.out
}

// startGap is between the first tries of two contenders: no machine does all at once.
const startGap = 20 * time.Microsecond

// try is a contender that asks for the lock.
func (r *race) try(process int) {
	if r.inUse[process] > 0 {
		r.busy(process) // this process knows it without Redis
		return
	}
	r.inUse[process]++
	r.out.Commands++
	r.at(r.load.RoundTrip/2, func() {
		got := !r.held
		if got {
			r.held, r.holder = true, process
		}
		r.at(r.load.RoundTrip/2, func() {
			if got {
				r.have(process)
				return
			}
			r.inUse[process]--
			r.busy(process)
		})
	})
}

// busy is what a contender does that did not get the lock.
func (r *race) busy(process int) {
	if r.lock.Wait.Poll {
		r.at(r.lock.BusyRetry.Wait(r.rnd()), func() { r.try(process) })
		return
	}
	r.waiting[process] = append(r.waiting[process], process)
}

// have is a contender that works under the lock.
func (r *race) have(process int) {
	r.out.Waits = append(r.out.Waits, r.now)
	r.at(r.load.Hold, func() { r.release(process) })
}

// release ends a turn: the lock goes to a contender of the same process, to another
// process, or back.
func (r *race) release(process int) {
	r.out.Drain = r.now
	if !r.lock.Wait.Poll {
		r.handOn(process)
		return
	}
	r.out.Commands++
	r.at(r.load.RoundTrip/2, func() {
		r.held = false
		r.at(r.load.RoundTrip/2, func() { r.inUse[process]-- })
	})
}

func (r *race) handOn(process int) {
	next := r.next(process)
	switch {
	case len(r.waiting[process]) > 0 && (r.passes < maxPasses || next == process):
		r.passes++
		r.waiting[process] = r.waiting[process][1:]
		r.have(process)
	case next != process:
		r.passes = 0
		r.inUse[process]--
		r.inUse[next]++
		r.waiting[next] = r.waiting[next][1:]
		r.out.Commands += 2 // given back, and claimed
		r.at(2*r.load.RoundTrip, func() { r.have(next) })
	default:
		r.out.Commands++
		r.held = false
		r.inUse[process]--
	}
}

// next is the process whose turn it is; the same: nobody else waits.
func (r *race) next(process int) int {
	for i := 1; i < r.load.Processes; i++ {
		if other := (process + i) % r.load.Processes; len(r.waiting[other]) > 0 {
			return other
		}
	}
	return process
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

func (r *race) at(after time.Duration, do func()) {
	r.seq++
	heap.Push(&r.events, event{r.now + after, r.seq, do})
}

type events []event

// Len implements heap.Interface.
func (e events) Len() int { return len(e) }

// Less implements heap.Interface.
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}

// Swap implements heap.Interface.
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) } //nolint:errcheck,forcetypeassert // only at pushes

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// Summary is what many races of a policy come to: medians.
type Summary struct {
	// Drain is when the last contender was done.
	Drain time.Duration
	// P50, P95 and P99 are how long contenders waited.
	P50, P95, P99 time.Duration
	// Commands to Redis, for each contender.
	Commands float64
}

// Races plays so many, and summarises them. rnd is a random source for each.
func Races(times int, load Load, lock policy.RunLock, rnd func(race int) func() float64) Summary {
	var drains, p50s, p95s, p99s, commands []time.Duration
	for i := range times {
		o := Race(load, lock, rnd(i))
		slices.Sort(o.Waits)
		rank := func(percent int) time.Duration { return o.Waits[min(len(o.Waits)-1, len(o.Waits)*percent/100)] }
		drains, commands = append(drains, o.Drain), append(commands, time.Duration(o.Commands))
		p50s, p95s, p99s = append(p50s, rank(50)), append(p95s, rank(95)), append(p99s, rank(99))
	}
	return Summary{
		Drain: median(drains), P50: median(p50s), P95: median(p95s), P99: median(p99s),
		Commands: float64(median(commands)) / float64(load.Contenders),
	}
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
