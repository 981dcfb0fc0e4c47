// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/testenv/door"
)

// eventually bounds what must happen soon, on a machine of any speed.
const eventually = 20 * time.Second

// steady is a policy whose leases no test outlasts.
func steady() policy.RunLock {
	p := policy.Defaults().RunLock
	p.TTL, p.Linger = time.Minute, 0
	return p
}

// brief is a policy that lets a test wait for the end of a TTL many times: validity 450 ms, and who
// waits looks often.
func brief() policy.RunLock {
	return policy.RunLock{
		TTL:       500 * time.Millisecond,
		BusyRetry: policy.BusyRetry{Delay: 20 * time.Millisecond, JitterPercent: 30},
		Wait:      policy.Wait{Poll: true},
		Renewal:   policy.Renewal{Interval: 150 * time.Millisecond, Timeout: 120 * time.Millisecond, MaxConsecutiveFailures: 3, Margin: 50 * time.Millisecond},
	}
}

// world is a redis-server, an API server and processes.
type world struct {
	t        *testing.T
	redis    *redistest.Server
	register *register
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, redis: redistest.Start(t), register: newRegister()}
}

func (w *world) process(name string) *process {
	w.t.Helper()
	return startProcess(w.t, name, w.redis.Addr(), w.register.methods())
}

// await waits until the state of a lease is as wanted.
func (w *world) await(p *process, l taken, want func(leaseState) bool) leaseState {
	w.t.Helper()
	for start := instant(); ; {
		s := ask[leaseState](w.t, p, "state", l.LeaseID)
		if want(s) {
			return s
		}
		if instant()-start > eventually {
			w.t.Fatalf("after %s the lease of child %s is %+v", eventually, p.name, s)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

// now is the status of a run.
func (w *world) now(run string) object {
	w.register.mu.Lock()
	defer w.register.mu.Unlock()
	return w.register.objects[run]
}

// Redis loses its data between a take and the first write, so that two leases get the same fence.
//
// mutation: a register without the rule for equal fences makes this fail.
// mutation: acquire.lua without the floor makes this fail.
func TestTwoHoldersOfTheSameNumberCannotBothWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ firstWriter, secondWriter int }{
		"the first to take writes first":  {0, 1},
		"the second to take writes first": {1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			children := []*process{w.process("one"), w.process("two")}
			// A run with a history: the fence must not go back to 1.
			old := ask[taken](t, children[0], "take", takeArgs{Run: "r", Policy: steady(), Asked: object{Fence: 41, LeaseID: "old"}})
			w.mustWrite(children[0], "r", old, accepted)
			ask[none](t, children[0], "end", endArgs{LeaseID: old.LeaseID, Drop: true})
			seen := w.now("r")

			var leases []taken
			for _, p := range children {
				leases = append(leases, ask[taken](t, p, "take", takeArgs{Run: "r", Policy: steady(), Asked: seen}))
				w.redis.FlushAll()
			}
			if leases[0].Fence != leases[1].Fence || leases[0].LeaseID == leases[1].LeaseID || leases[0].Fence <= seen.Fence {
				t.Fatalf("leases %+v after fence %d; want two of the same number", leases, seen.Fence)
			}
			w.mustWrite(children[test.firstWriter], "r", leases[test.firstWriter], accepted)
			w.mustWrite(children[test.secondWriter], "r", leases[test.secondWriter], otherLease)

			ask[none](t, children[test.secondWriter], "end", endArgs{LeaseID: leases[test.secondWriter].LeaseID, Drop: true})
			next := ask[taken](t, children[test.secondWriter], "take", takeArgs{Run: "r", Policy: steady(), Asked: w.now("r"), Wait: true})
			if next.Fence <= leases[0].Fence {
				t.Errorf("the next lease has fence %d after %d", next.Fence, leases[0].Fence)
			}
			w.mustWrite(children[test.secondWriter], "r", next, accepted)
			w.mustWrite(children[test.firstWriter], "r", leases[test.firstWriter], lowerFence)
		})
	}
}

// mustWrite writes under a lease without asking whether it is still good: what the register says
// is what counts.
func (w *world) mustWrite(p *process, run string, l taken, want verdict) {
	w.t.Helper()
	if got := ask[verdict](w.t, p, "write", writeArgs{Run: run, LeaseID: l.LeaseID, Blind: true}); got != want {
		w.t.Errorf("the write of child %s under fence %d was %s; want %s", p.name, l.Fence, got, want)
	}
}

const (
	pausedRounds  = 100
	pausedHolders = 5 // at a time, with a run each
)

// Each round pauses a process that holds a lock, until another one has taken it and written. Then
// the first goes on, once as it should, asking Lease.Err before it writes, and once as if it had
// been paused between the two.
//
// mutation: a Lease.Err that does not look at the clock makes this fail.
// mutation: a register without the rule for lower fences makes this fail.
func TestAHolderPausedBeyondTheTTLCannotWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.process("other")
	var holders sync.WaitGroup
	for i := range pausedHolders {
		p := w.process("holder-" + strconv.Itoa(i))
		run := "run-" + strconv.Itoa(i)
		holders.Go(func() {
			for range pausedRounds / pausedHolders {
				if err := w.pauseHolder(p, other, run); err != nil {
					t.Errorf("run %s: %v", run, err)
				}
			}
		})
	}
	holders.Wait()
	counts := map[verdict]int{}
	for _, a := range w.register.attempts() {
		counts[a.Verdict]++
	}
	if counts[accepted] != 2*pausedRounds || counts[lowerFence] != pausedRounds {
		t.Errorf("writes: %v; want %d accepted, and %d refused for their fence", counts, 2*pausedRounds, pausedRounds)
	}
}

// pauseHolder is one round. It does not end the test, since it runs beside it.
func (w *world) pauseHolder(p, other *process, run string) error {
	ctx := w.t.Context()
	args := func() takeArgs { return takeArgs{Run: run, Policy: brief(), Asked: w.now(run), Wait: true} }
	expect := func(p *process, l taken, blind bool, want verdict) error {
		got, err := try[verdict](ctx, p, "write", writeArgs{Run: run, LeaseID: l.LeaseID, Blind: blind})
		if err == nil && got != want {
			err = errors.New("the write of child " + p.name + " was " + strconv.Quote(string(got)) + ", not " + strconv.Quote(string(want)))
		}
		return err
	}
	mine, err := try[taken](ctx, p, "take", args())
	if err == nil {
		err = expect(p, mine, true, accepted)
	}
	if err != nil {
		return err
	}
	p.pause()
	theirs, err := try[taken](ctx, other, "take", args())
	if err == nil {
		err = expect(other, theirs, true, accepted)
	}
	p.resume()
	if err != nil {
		return err
	}
	const notWritten = verdict("")
	return errors.Join(
		expect(p, mine, false, notWritten),
		expect(p, mine, true, lowerFence),
		p.peer.call(ctx, "end", endArgs{LeaseID: mine.LeaseID}, nil),
		other.peer.call(ctx, "end", endArgs{LeaseID: theirs.LeaseID, Drop: true}, nil),
	)
}

// The process at the head of the line is killed. The lock has a TTL of a minute, and places in line
// are kept as long, so only the rule that a head must claim at once lets the next one have it.
//
// mutation: a release that reserves the lock for a head without a bound makes this fail.
func TestADeadHeadOfTheQueueIsSkipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := steady()
	p.Wait.Budget = p.TTL
	holder, head, next := w.process("holder"), w.process("head"), w.process("next")
	first := ask[taken](t, holder, "take", takeArgs{Run: "r", Policy: p})
	for _, waiter := range []*process{head, next} {
		got := ask[taken](t, waiter, "take", takeArgs{Run: "r", Policy: p})
		if !got.Queued {
			t.Fatalf("child %s has no place in line: %+v", waiter.name, got)
		}
	}
	head.kill()
	start := instant()
	ask[none](t, holder, "end", endArgs{LeaseID: first.LeaseID})
	second := ask[taken](t, next, "take", takeArgs{Run: "r", Policy: p, Wait: true})
	took := instant() - start
	t.Logf("the next in line had the lock after %s", took)
	if took > eventually {
		t.Errorf("the next in line waited %s", took)
	}
	if second.Fence <= first.Fence {
		t.Errorf("the fence is %d after %d", second.Fence, first.Fence)
	}
}

// Redis is out of reach for a holder that goes on without its lock; meanwhile another takes
// it and writes.
//
// mutation: a lock that is taken again with the fence it had makes this fail.
// mutation: a holder that does not stop where another has the lock makes this fail.
func TestAHolderThatGoesOnDoesNotWriteOverAnother(t *testing.T) {
	t.Parallel()
	goesOn := brief()
	goesOn.Renewal.Continue = true
	tests := map[string]struct{ gone bool }{
		"who is gone again":  {true},
		"who is still there": {false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			way := door.New(t, w.redis.Addr())
			cutOff := startProcess(t, "cut-off", way.Addr(), w.register.methods())
			other := w.process("other")
			mine := ask[taken](t, cutOff, "take", takeArgs{Run: "r", Policy: goesOn})
			w.mustWrite(cutOff, "r", mine, accepted)

			way.Shut()
			w.await(cutOff, mine, func(s leaseState) bool { return s.Unlocked })
			w.mustWrite(cutOff, "r", mine, accepted)
			theirs := ask[taken](t, other, "take", takeArgs{Run: "r", Policy: steady(), Asked: w.now("r"), Wait: true})
			w.mustWrite(other, "r", theirs, accepted)
			w.mustWrite(cutOff, "r", mine, lowerFence)
			if test.gone {
				ask[none](t, other, "end", endArgs{LeaseID: theirs.LeaseID, Drop: true})
			}

			way.Open()
			if !test.gone {
				w.await(cutOff, mine, func(s leaseState) bool { return s.Err != "" })
				w.mustWrite(cutOff, "r", mine, lowerFence)
				return
			}
			s := w.await(cutOff, mine, func(s leaseState) bool { return s.Err != "" || !s.Unlocked })
			if s.Err != "" || s.Fence <= theirs.Fence {
				t.Errorf("the lease is %+v, after fence %d of another", s, theirs.Fence)
			}
			w.mustWrite(cutOff, "r", mine, accepted)
		})
	}
}
