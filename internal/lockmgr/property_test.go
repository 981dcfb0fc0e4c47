// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const processes = 3

// step is one thing that happens in a story about one run.
type step struct {
	Process int
	Does    string
	Wait    time.Duration
	Fault   outcome // of the process's calls from now on
}

// TestStories plays random stories: processes take, wait in the queue, write, release; each has its
// own faults between itself and Redis; news are lost; Redis loses its data in a few of them. One of
// the processes goes on when it cannot renew. Invariants, unless Redis lost its data:
//   - one process at most believes that it has the lock at any time,
//   - a lease that has the lock is not refused by the fence of the status.
//
// Always: a take that knew the status gets a fence with which it may write, the fence of the status
// does not fall, and when all is quiet the lock can be taken.
//
// mutation: a validity beyond the TTL, an acquire without the comparison, a fence without the floor
// (both in the model, whose counterparts in the scripts are up to the conformance suite), and a
// lingering lease reused whatever the status says make this fail.
func TestStories(t *testing.T) {
	does := []string{
		"take", "take", "take", "take", "write", "write", "release", "drop", "wait", "wait", "wait", "wait", "fault", "heal", "heal", "flush", "deafen", "hear",
	}
	waits := []time.Duration{time.Millisecond, 500 * time.Millisecond, 3 * time.Second, 9 * time.Second, 27 * time.Second, 31 * time.Second}
	steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			Process: rapid.IntRange(0, processes-1).Draw(rt, "process"),
			Does:    rapid.SampledFrom(does).Draw(rt, "does"),
			Wait:    rapid.SampledFrom(waits).Draw(rt, "wait"),
			Fault:   outcome(rapid.IntRange(1, int(outcomesCount)-1).Draw(rt, "fault")),
		}
	}), 40, 120)
	rapid.Check(t, func(rt *rapid.T) {
		story := steps.Draw(rt, "steps")
		// Without loss of data more is forbidden, so half of the stories are spared it.
		if rapid.Bool().Draw(rt, "keeps its data") {
			story = slices.DeleteFunc(story, func(s step) bool { return s.Does == "flush" })
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = play(t, story) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// stage is where a story is played.
type stage struct {
	t       *testing.T
	bubble  *bubble
	stores  [processes]*modelStore
	m       [processes]*Manager
	leases  [processes]*Lease
	flushed bool
	fence   int64 // of the status
	leaseID string
}

func play(t *testing.T, story []step) error {
	b := &bubble{t: t, store: newModelStore(time.Now)}
	st := &stage{t: t, bubble: b}
	for i := range st.m {
		st.stores[i] = b.store.peer()
		st.m[i] = newManager(st.stores[i], Options{
			Rand:  func() float64 { return 0.5 },
			NewID: func() string { return strconv.FormatInt(b.ids.Add(1), 10) },
		})
	}
	for n, does := range story {
		if err := st.play(does); err != nil {
			_ = st.end()
			return fmt.Errorf("step %d: %w", n, err)
		}
	}
	return st.end()
}

func (st *stage) play(does step) error {
	l := st.leases[does.Process]
	switch does.Does {
	case "take":
		return st.take(does.Process)
	case "write":
		if err := st.write(l); err != nil {
			return err
		}
	case "release", "drop":
		if l == nil {
			break
		}
		st.leases[does.Process] = nil
		if does.Does == "drop" {
			l.Drop(st.t.Context())
		} else {
			l.Release(st.t.Context())
		}
	case "fault":
		st.stores[does.Process].script(func(string, string, int) outcome { return does.Fault })
	case "heal":
		st.stores[does.Process].script(nil)
	case "deafen", "hear":
		st.bubble.store.mu.Lock()
		*st.bubble.store.deaf = does.Does == "deafen"
		st.bubble.store.mu.Unlock()
	case "flush":
		st.bubble.store.flush()
		st.flushed = true
	case "wait":
		st.bubble.pass(does.Wait)
	}
	return st.oneWorks()
}

func (st *stage) take(process int) error {
	r := st.request(process)
	l, err := st.m[process].Acquire(st.t.Context(), r)
	if err != nil {
		return st.oneWorks() // busy and unavailable are part of the story
	}
	if st.leases[process] != nil {
		return errors.New("a process got a second lease of the same run")
	}
	st.leases[process] = l
	if l.Fence() < st.fence || (l.Fence() == st.fence && l.ID() != st.leaseID) {
		return fmt.Errorf("fence %d of %s; the status has %d of %s", l.Fence(), l.ID(), st.fence, st.leaseID)
	}
	return st.oneWorks()
}

// write is the API server's rule.
func (st *stage) write(l *Lease) error {
	if valid := l != nil && l.Err() == nil; !valid {
		return nil
	}
	locked := !l.Status().Unlocked
	if l.Fence() > st.fence || (l.Fence() == st.fence && l.ID() == st.leaseID) {
		st.fence, st.leaseID = l.Fence(), l.ID()
		return nil
	}
	if st.flushed || !locked {
		return nil
	}
	return fmt.Errorf("a valid lease with fence %d of %s was refused: the status has %d of %s", l.Fence(), l.ID(), st.fence, st.leaseID)
}

func (st *stage) oneWorks() error {
	valid := 0
	for _, l := range st.leases {
		if l != nil && l.Err() == nil && !l.Status().Unlocked {
			valid++
		}
	}
	if valid > 1 && !st.flushed {
		return fmt.Errorf("%d processes may work on the run", valid)
	}
	return nil
}

// request knows the status. Failures are many, so that it is the deadline that counts. The last
// process goes on.
func (st *stage) request(process int) Request {
	r := request()
	r.Floor, r.FloorLeaseID = st.fence, st.leaseID
	r.Policy.Renewal.MaxConsecutiveFailures = 100
	r.Policy.Renewal.Continue = process == processes-1
	r.Wake = func() {}
	return r
}

// end lets all faults be over and checks that the lock can be taken.
func (st *stage) end() error {
	for i, l := range st.leases {
		st.stores[i].script(nil)
		if l != nil {
			l.Release(st.t.Context())
		}
	}
	st.bubble.pass(st.request(0).Policy.TTL + 3*time.Second)
	l, err := st.m[0].Acquire(st.t.Context(), st.request(0))
	if err == nil {
		l.Drop(st.t.Context())
	}
	for _, m := range st.m {
		err = errors.Join(err, m.Close(st.t.Context()))
	}
	return err
}
