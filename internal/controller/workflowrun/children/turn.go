// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

const (
	// leftEmpty is how long a run has a place that it does not use: the pass that it has made may
	// be late, or wait for a lock. Then the next in line has it, and the late pass takes a place
	// that another run leaves empty.
	leftEmpty = 10 * time.Second
	// tellLine is after how long a run says that it waits for its turn: each such text
	// costs a write.
	tellLine = 10 * time.Second
	// lineText is that text.
	lineText = "as many child runs of the namespace are being created as may be at a time; it is in line for the next place"
)

// turn is that of a run in the line of those of its namespace that want to create child runs. It
// stays in line when its pass ends, or runs whose passes have more time would go past it. A run has
// one turn at a time, for its next child, so one with many children does not keep others waiting.
type turn struct {
	namespace string
	places    places
	empty     *empties
	wake      func()
	ready     chan struct{} // closed when it has its place

	mu     sync.Mutex
	ticket *shares.Ticket
	has    bool
	left   bool // no pass waits for it
	over   bool // its place is used, or it was given up
	late   bool // its place was given to another run, as no pass came for it
	unused *time.Timer
	kept   func() bool // ends what has it given up with the ownership of its run
}

// lineUp has a run wait for its turn, until while ends. A run that was late takes a place that
// another one leaves empty, or keeps its position. Were it last in line, and all runs late, places
// would go from one to the next, and nobody would create anything.
func (c *Children) lineUp(while context.Context, parent *v1alpha1.WorkflowRun, was *turn) *turn {
	key := client.ObjectKeyFromObject(parent)
	t := &turn{namespace: parent.Namespace, places: c.Places, empty: c.empties(), ready: make(chan struct{}), wake: func() {
		if c.Wake != nil {
			c.Wake(key)
		}
	}}
	late := was.wasLate()
	if late {
		t.ticket = c.empties().take(parent.Namespace)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ticket != nil:
	case late:
		t.ticket = c.Places.Again(was.ticket, t.comes)
	default:
		t.ticket = c.Places.Take(parent.Namespace, t.comes)
	}
	if c.Places.Has(t.ticket) {
		t.has = true
		close(t.ready)
	}
	t.kept = context.AfterFunc(while, func() { t.leave() })
	return t
}

// comes notes that the turn has its place.
func (t *turn) comes() {
	t.mu.Lock()
	if t.has || t.over {
		t.mu.Unlock()
		return
	}
	t.has = true
	close(t.ready)
	left := t.left
	t.limit()
	t.mu.Unlock()
	if left {
		t.wake()
	}
}

// limit has the place given back that no pass comes for. t.mu is held.
func (t *turn) limit() {
	if t.left && t.has && !t.over && t.unused == nil {
		t.empty.add(t)
		t.unused = time.AfterFunc(leftEmpty, func() { //nolint:forbidigo // a place is left empty by the clock of the machine
			if ticket := t.lose(); ticket != nil {
				t.places.Give(ticket)
				t.wake() // it gets in line again if it still wants to
			}
		})
	}
}

// lose takes the place that no pass has come for; nil: it has none. The caller wakes the run.
func (t *turn) lose() *shares.Ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || !t.has {
		return nil
	}
	t.end()
	t.late = true
	return t.ticket
}

// wasLate says whether its place was given to another run.
func (t *turn) wasLate() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.late
}

// waits says whether the turn has not come.
func (t *turn) waits() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.has && !t.over
}

// isOver says whether there is no turn to wait for, or to take.
func (t *turn) isOver() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// take gives the place to who creates a child, who calls done; nil: the turn has none.
func (t *turn) take() (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.has || t.over {
		return nil
	}
	t.end()
	return func() { t.places.Give(t.ticket) }
}

// stay leaves the turn to a later pass, and says whether that is to be made at once: the turn has
// its place, and wakes nobody then, or it has just lost it.
func (t *turn) stay() (atOnce bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	t.limit()
	return t.has && !t.over || t.late
}

// leave gives the turn up, unless its place is used.
func (t *turn) leave() {
	t.mu.Lock()
	over := t.over
	t.end()
	t.mu.Unlock()
	if !over {
		t.places.Give(t.ticket) // others have their turn by that
	}
}

// end notes that the turn is over. t.mu is held.
func (t *turn) end() {
	t.over = true
	t.kept()
	if t.unused != nil {
		t.unused.Stop()
		t.empty.drop(t)
	}
}

// place gives a creation its place. If there is none the run is in line, and the pass waits as long
// as it does for what it began, or briefly.
func (c *Children) place(waits, while context.Context, st *State, parent *v1alpha1.WorkflowRun) (done func(), has bool) {
	if c.Places == nil {
		return func() {}, true
	}
	if st.turn.isOver() { // also if it left its place empty for too long
		st.turn = c.lineUp(while, parent, st.turn)
	}
	if !st.begun() {
		brief, stop := context.WithTimeout(waits, briefly)
		defer stop()
		waits = brief
	}
	select {
	case <-st.turn.ready:
	case <-waits.Done():
	}
	if done = st.turn.take(); done != nil {
		st.turn = nil
	}
	return done, done != nil
}

// stay leaves the turn of the run to the next pass, if there is more to create, and says whether
// that is to be made at once.
func (st *State) stay(c *Children, more bool) (atOnce bool) {
	switch {
	case st.turn == nil:
		st.lacks = time.Time{}
		return more
	case st.turn.waits() || more:
		if st.lacks.IsZero() {
			st.lacks = c.Clock.Now()
		}
		return st.turn.stay()
	default: // what it was for is not to be created now
		st.LeaveLine()
		return false
	}
}

// LeaveLine gives up what the run has in the line of those that want to create child runs, as
// where it has ended.
func (st *State) LeaveLine() {
	if st.turn != nil {
		st.turn.leave()
	}
	st.turn, st.lacks = nil, time.Time{}
}

// seen is what the run is to know of a child that is not known to exist, and when it is to look
// again; zero: when it is woken.
func (st *State) seen(b *creation, now time.Time) (fact lifecycle.Child, again time.Time) {
	at, due := st.dueAt(b)
	switch {
	case !due || st.probes():
		return b.fact, time.Time{}
	case st.lacks.IsZero() || now.Before(at):
		return b.fact, at // zero, as of one that is new: no time
	case b.fact.State != lifecycle.ChildUnknown:
		return b.fact, time.Time{}
	case now.Before(st.lacks.Add(tellLine)):
		return b.fact, st.lacks.Add(tellLine)
	default:
		return lifecycle.Child{State: lifecycle.ChildPostponed, Cause: lineText}, time.Time{}
	}
}
