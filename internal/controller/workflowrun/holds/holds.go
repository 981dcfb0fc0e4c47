// SPDX-License-Identifier: Apache-2.0

// Package holds takes the locks across runs that a run or its steps need, and gives them back.
//
// For example: a decision about a run lacks its locks. The pass asks for them, after the run was
// read, and decides again: with the locks, which the next status write has, or with the wait for
// them. When the run ended, and status says so, they are dropped, and who is next is woken.
//
// What a pass has asked for is remembered (State) until it was dropped. What a process leaves
// behind that dies, the resync of internal/quota/locks finds.
//
// # When something is dropped
//
//	the run, or the step, is over                  whatever there is: that never changes back; but not
//	                                               while a child run inside of it is at its clean-up
//	status has it, or says that it waits           nothing
//	this pass asked for it, and may write it       nothing: the run is of the same version
//	else: the run was suspended, say, or ended     its place; and its grant, if the run was written
//	                                               since: then nobody can write that any more
package holds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Locks decides who has which locks; *locks.Controller does.
type Locks interface {
	// Take takes all locks, or none.
	Take(ctx context.Context, run *v1alpha1.WorkflowRun, part string, requests []locks.Request) (locks.Answer, error)
	// Drop takes from tickets what they have, and wakes who is next.
	Drop(ctx context.Context, all ...store.Dropping) error
}

// Holds asks for runs. The zero value has no locks to give.
type Holds struct {
	Locks Locks
	// Below says whether any of these child runs, or one below them, has not ended.
	Below func(ctx context.Context, namespace string, children []v1alpha1.ChildRunStatus) (bool, error)
}

// State is what this process has asked for, or has seen in status, of one run: by ticket the
// version of the run at that time.
type State struct {
	tickets map[string]string
	kept    bool
}

// Kept says whether a part that is over keeps what it has, for a child run that is at its clean-up.
// Release is to be called again.
func (st *State) Kept() bool { return st.kept }

// Asked is what became of the questions of a pass, by part; "" is the run.
type Asked map[string]lifecycle.LocksAnswer

var errNoLocks = errors.New("this operator has no locks across runs")

// Ask asks for locks, once in a pass, and notes the answer. The answer says so, too, where the
// error is why there is none. A store that hangs costs a second: after that the pass
// asks nothing more.
func (h *Holds) Ask(ctx context.Context, st *State, asked Asked, run *v1alpha1.WorkflowRun, ask lifecycle.LocksAsk) (Asked, error) {
	if asked == nil {
		asked = Asked{}
	}
	if h.Locks == nil {
		asked[ask.Part] = lifecycle.LocksAnswer{State: lifecycle.LocksUnavailable, Cause: errNoLocks.Error()}
		return asked, errNoLocks
	}
	if away, is := asked.away(); is {
		asked[ask.Part] = away
		return asked, nil
	}
	st.note(locks.TicketOf(run.UID, ask.Part), run.ResourceVersion) // before the answer, which may get lost
	requests := make([]locks.Request, 0, len(ask.Wants))
	for _, w := range ask.Wants {
		requests = append(requests, locks.Request{Name: w.Name, Permits: w.Permits})
	}
	answer, err := h.Locks.Take(ctx, run, ask.Part, requests)
	asked[ask.Part] = answerOf(answer, err)
	if _, unusable := errors.AsType[*locks.UnusableError](err); err != nil && !unusable {
		return asked, fmt.Errorf("ask for locks: %w", err)
	}
	return asked, nil
}

// away is the answer of a pass that the store did not give.
func (a Asked) away() (lifecycle.LocksAnswer, bool) {
	for _, answer := range a {
		if answer.State == lifecycle.LocksUnavailable {
			return answer, true
		}
	}
	return lifecycle.LocksAnswer{}, false
}

func (st *State) note(ticket, version string) {
	if st.tickets == nil {
		st.tickets = map[string]string{}
	}
	st.tickets[ticket] = version
}

func answerOf(a locks.Answer, err error) lifecycle.LocksAnswer {
	if unusable, ok := errors.AsType[*locks.UnusableError](err); ok {
		return lifecycle.LocksAnswer{State: lifecycle.LocksRefused, Reason: v1alpha1.ReasonLockUnusable, Lock: unusable.Lock, Cause: unusable.Why}
	}
	if err != nil {
		return lifecycle.LocksAnswer{State: lifecycle.LocksUnavailable, Cause: err.Error()}
	}
	is := lifecycle.LocksAnswer{
		Fence: a.Fence, Lock: a.Lock, Holders: a.Holders, Position: a.Position, Queued: a.Waiting, Ahead: a.Ahead, TTL: a.TTL,
		Again: a.Again,
	}
	switch a.State {
	case store.LocksHeld:
		is.State = lifecycle.LocksHeld
	case store.LocksWaiting:
		is.State = lifecycle.LocksWaiting
	default:
		is.State, is.Reason, is.Lock = lifecycle.LocksRefused, a.State, cmp.Or(a.Lock, "it asked for")
	}
	return is
}

// See notes what a run holds by its status: another process may have taken it.
func (h *Holds) See(st *State, run *v1alpha1.WorkflowRun) {
	if run.Status == nil || h.Locks == nil || lifecycle.Finished(run) {
		return
	}
	for _, ticket := range locks.HeldBy(run) {
		st.note(ticket, run.ResourceVersion)
	}
}

// Release gives back what the run does not need any more by its status, as this process read or
// wrote it. Until that worked it is remembered.
func (h *Holds) Release(ctx context.Context, st *State, run *v1alpha1.WorkflowRun, asked Asked) error {
	var all []store.Dropping
	var failed error
	st.kept = false
	for _, ticket := range slices.Sorted(maps.Keys(st.tickets)) {
		_, part, _ := strings.Cut(ticket, "/")
		p := locks.PartOf(run, part)
		below, err := h.below(ctx, run, part)
		failed = errors.Join(failed, err)
		switch {
		case p.Over && (below || err != nil):
			st.kept = true
		case p.Over:
			all = append(all, store.Dropping{Ticket: ticket})
		case len(p.Holds) > 0 || p.Waits:
		case asked.mayWrite(part) && st.tickets[ticket] == run.ResourceVersion:
		default:
			all = append(all, store.Dropping{Ticket: ticket, Seen: run.ResourceVersion})
		}
	}
	return errors.Join(failed, h.drop(ctx, st, run.ResourceVersion, all))
}

// mayWrite says whether this pass has something to write of a part.
func (a Asked) mayWrite(part string) bool {
	return a[part].State == lifecycle.LocksHeld || a[part].State == lifecycle.LocksWaiting
}

// below says whether a child run inside of a part that is over has not ended.
func (h *Holds) below(ctx context.Context, run *v1alpha1.WorkflowRun, part string) (bool, error) {
	children := locks.ChildrenOf(run, part)
	if len(children) == 0 || !locks.PartOf(run, part).Over {
		return false, nil
	}
	below, err := h.Below(ctx, run.Namespace, children)
	if err != nil {
		return false, fmt.Errorf("look at child runs before their locks are given back: %w", err)
	}
	return below, nil
}

// ReleaseAll gives back all that a run had, as far as this process knows: it was deleted, or nobody
// can write it.
func (h *Holds) ReleaseAll(ctx context.Context, st *State) error {
	var all []store.Dropping
	for ticket := range st.tickets {
		all = append(all, store.Dropping{Ticket: ticket})
	}
	return h.drop(ctx, st, "", all)
}

func (h *Holds) drop(ctx context.Context, st *State, now string, all []store.Dropping) error {
	if len(all) == 0 {
		return nil
	}
	if err := h.Locks.Drop(ctx, all...); err != nil {
		return fmt.Errorf("give locks back: %w", err)
	}
	for _, d := range all {
		if d.Seen == "" || st.tickets[d.Ticket] != now { // else its grant can still be written, and was kept
			delete(st.tickets, d.Ticket)
		}
	}
	return nil
}

// WaitsForOwn says whether the run itself waits for its locks, as far as this pass knows: it needs
// no slot meanwhile. Where they could not be asked for, one that status has wait still does.
func (a Asked) WaitsForOwn(run *v1alpha1.WorkflowRun) bool {
	switch a[""].State {
	case lifecycle.LocksWaiting:
		return true
	case lifecycle.LocksUnavailable:
		return locks.PartOf(run, "").Waits
	default:
		return false
	}
}
