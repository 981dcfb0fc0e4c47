// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"strconv"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// LocksAsk is what a run, one of its steps, or an item, needs all at once. Locks, in the plural,
// are semaphores and mutexes; Lock is the run lock.
type LocksAsk struct {
	Part   string // of the run: "" spec.locks, "build" those of a step, "build/3" those of an item
	Wants  []LockWant
	Places int  // of maxParallelSteps that were free at its turn; 0: it takes none
	Fatal  bool // a refusal ends what others ask for: the run, or the step of an item
}

// AskInTurn asks for locks one after the other. A grant that finds no place is given back, and
// others were refused, or cancelled, for it: so no more are asked than may use what they get. What
// a refusal ends the next decision says.
func AskInTurn(asks []LocksAsk, ask func(LocksAsk) LocksState) {
	placed := 0
	for _, a := range asks {
		if a.Places > 0 && placed >= a.Places {
			continue
		}
		switch state := ask(a); {
		case state == LocksRefused && a.Fatal:
			return
		case state == LocksHeld && a.Places > 0:
			placed++
		}
	}
}

// LockWant is one of them.
type LockWant struct {
	Name    string
	Permits int32
}

// LocksState is what became of a question for locks.
type LocksState int

// States of an answer. The zero value gives nothing.
const (
	LocksUnasked     LocksState = iota // nobody asked; Needs.Locks says what to ask for
	LocksHeld                          // they may be written into status by this decision
	LocksWaiting                       // they are waited for; who waits holds none
	LocksRefused                       // they will not be had: Reason
	LocksUnavailable                   // they could not be asked for
)

// LocksAnswer is what became of a question, asked after the run of this decision was read.
type LocksAnswer struct {
	State    LocksState
	Fence    int64
	Reason   string        // LocksRefused: a reason, also the code of a step
	Lock     string        // the one that is waited for, or that refused
	Holders  []string      // namespace/name of runs that hold it, some of them
	Position int           // in its queue, from 1
	Queued   int           // in its queue
	Ahead    string        // namespace/name of the run just ahead; "" for the first
	TTL      time.Duration // bounds the wait; 0: nothing does
	Again    time.Time     // when to ask again, for a rate; zero: it is woken
	Cause    string        // for people
}

// HoldsOf is what status has of locks that were asked for and are held.
func HoldsOf(ask *LocksAsk, fence int64) []v1alpha1.LockHold {
	all := make([]v1alpha1.LockHold, 0, len(ask.Wants))
	for _, w := range ask.Wants {
		all = append(all, v1alpha1.LockHold{Name: w.Name, Permits: w.Permits, Fence: fence})
	}
	return all
}

// Above are the locks that a run is inside of, of the runs above it.
func Above(st *v1alpha1.WorkflowRunStatus) []v1alpha1.LockHold {
	if st.Parent == nil {
		return nil
	}
	return st.Parent.Locks
}

// FencesOf are those of all locks that protect a job of a step, or of one of its items ("": it has
// none): its own, those of its step and its run, and of the runs above it.
func FencesOf(st *v1alpha1.WorkflowRunStatus, s *v1alpha1.StepStatus, item string) []string {
	return LockFences(slices.Concat(Above(st), st.Locks, s.Locks, ofItem(s, item)))
}

func ofItem(s *v1alpha1.StepStatus, item string) []v1alpha1.LockHold {
	if s.ForEach == nil {
		return nil
	}
	for i := range s.ForEach.Locks {
		if l := &s.ForEach.Locks[i]; strconv.Itoa(int(l.Item)) == item {
			return l.Locks
		}
	}
	return nil
}

// LockFences are those of locks as jobs carry them: "<lock>=<fence>", each lock once.
func LockFences(held []v1alpha1.LockHold) []string {
	var all []string
	for _, h := range held {
		all = append(all, h.Name+"="+strconv.FormatInt(h.Fence, 10))
	}
	return all
}
