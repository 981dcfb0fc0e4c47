// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// A model has at most one step that is a child run.

// kid is that child: the one of a uid, in a state. uid 0: there was none yet.
type kid struct {
	uid   int8
	state kidState
}

type kidState int8

const (
	kidGone kidState = iota
	kidThere
	kidSucceeded
	kidFailed
)

// kidFact is what a process knows of it.
type kidFact struct {
	state ChildState
	kid   kid
}

func kidUID(n int8) string { return fmt.Sprint("kid-", n) }

// children are the facts for Decide.
func (f kidFact) children(run *v1alpha1.WorkflowRun) map[string]Child {
	named := Children(run)
	if f.state == ChildUnknown || len(named) == 0 {
		return nil
	}
	c := Child{State: f.state, UID: kidUID(f.kid.uid), Finished: f.kid.state > kidThere, Phase: v1alpha1.RunFailed}
	if f.kid.state == kidSucceeded {
		c.Phase, c.Output = v1alpha1.RunSucceeded, []byte(fmt.Sprintf(`{"by":%q,"ok":true}`, c.UID))
	}
	return map[string]Child{named[0].ChildRun.Name: c}
}

// namedKid is the child that a status names: whether it does, and with which uid.
func (c *core) namedKid(number int32) (uid string, named bool) {
	st := c.statuses[number].status
	if st == nil || st.CompletedAt != nil {
		return "", false
	}
	for i := range st.Steps {
		if s := &st.Steps[i]; s.ChildRun != nil && status.InFlight(s.Phase) {
			return s.ChildRun.UID, true
		}
	}
	return "", false
}

// kidFact: before the child is confirmed a process knows of it what it created, or found; after
// that what the API server says.
func (m *model) kidFact(w *world, p *process) kidFact {
	uid, named := m.core.namedKid(p.view)
	switch {
	case !named, uid == "" && p.born == 0:
		return kidFact{}
	case uid == "":
		return kidFact{state: ChildThere, kid: kid{uid: p.born, state: kidThere}}
	case w.kid.state != kidGone: // it may be another one, of a process that was paused before it created it
		return kidFact{state: ChildThere, kid: w.kid}
	default:
		return kidFact{state: ChildGone}
	}
}

// birthSteps: whoever has the lock creates a child that status names and of which it knows nothing.
func (m *model) birthSteps(all []step, w *world, i int) []step {
	p := &w.process[i]
	uid, named := m.core.namedKid(p.view)
	if !named || uid != "" || p.born != 0 || p.lease.fence == 0 || m.noBirth {
		return all
	}
	next := *w
	next.process[i].create = true
	return append(all, step{next: next, name: label{text: "p%d is about to create a child", process: i, bit: -1}})
}

// giveBirth creates the child, or finds it.
func (m *model) giveBirth(w *world, i int) step {
	next := *w
	p := &next.process[i]
	p.create = false
	s := step{name: label{text: "p%d creates the child", process: i, bit: -1}}
	if next.kid.state == kidGone {
		next.kid = kid{uid: next.kid.uid + 1, state: kidThere}
	}
	p.born = next.kid.uid
	if st := m.core.statuses[w.status].status; st == nil || !namesAnyKid(st) {
		s.err = errors.New("a child was created before status names it")
	}
	s.next = next
	return s
}

func namesAnyKid(st *v1alpha1.WorkflowRunStatus) bool {
	for i := range st.Steps {
		if st.Steps[i].ChildRun != nil {
			return true
		}
	}
	return false
}

// kidSteps: a child that its parent has confirmed goes on to its end; somebody may delete it.
func (m *model) kidSteps(all []step, w *world) []step {
	if w.kid.state != kidThere {
		return all
	}
	end := func(state kidState, text string, fault bool) {
		next := *w
		next.kid.state = state
		if fault {
			next.faults--
		}
		all = append(all, step{next: next, name: label{text: text, process: -1, bit: -1}, fault: fault})
	}
	if uid, named := m.core.namedKid(w.status); named && uid == kidUID(w.kid.uid) {
		end(kidSucceeded, "the child succeeds", false)
		if w.faults > 0 {
			end(kidFailed, "the child fails", true)
		}
	}
	if w.faults > 0 {
		end(kidGone, "the child is deleted", true)
	}
	return all
}

// checkKid: a child is confirmed once, and its step ends as the child did.
func checkKid(q *question, was, now *v1alpha1.StepStatus) error {
	switch {
	case was.ChildRun != nil && (now.ChildRun == nil || now.ChildRun.Name != was.ChildRun.Name || (was.ChildRun.UID != "" && now.ChildRun.UID != was.ChildRun.UID)):
		return errors.New("another child")
	case status.Ended(was.Phase) || now.Phase == was.Phase:
		return nil
	case now.Phase == v1alpha1.StepCancelled && q.kid.state == ChildThere && q.kid.kid.state > kidThere && now.ChildRun != nil && kidUID(q.kid.kid.uid) == now.ChildRun.UID:
		return errors.New("cancelled, though its child was seen to have ended")
	case now.Phase == v1alpha1.StepSucceeded && (q.kid.kid.state != kidSucceeded || string(now.Output.Raw) != fmt.Sprintf(`{"by":%q,"ok":true}`, now.ChildRun.UID)):
		return errors.New("succeeded, and its child did not")
	case now.Phase == v1alpha1.StepFailed && now.Error.Code == facts.CodeChildDeleted && q.kid.state != ChildGone && kidUID(q.kid.kid.uid) == was.ChildRun.UID:
		return errors.New("said to be deleted, and is there")
	case now.Phase == v1alpha1.StepFailed && now.Error.Code == facts.CodeChildFailed && q.kid.kid.state != kidFailed:
		return errors.New("failed, and its child did not")
	}
	return nil
}
