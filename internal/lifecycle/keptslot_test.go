// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// firstInLine is the answer for a run that nobody is before in the queue of its lock.
func firstInLine() LocksAnswer {
	a := waitsFor
	a.Position, a.Ahead, a.TTL = 1, "", 0
	return a
}

// open is a gate that lets in who lost its turn at its locks before.
func open() Gate { return Gate{State: GateOpen, MayKeep: true, Idle: time.Minute} }

// keepsSlot is a run that keeps its slot for a minute from epoch on, and what it was decided with.
func keepsSlot(t *testing.T) (*v1alpha1.WorkflowRun, Input) {
	t.Helper()
	run := lockedRun()
	run.Spec.IdempotencyKey = "k"
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Claim: Claim{State: ClaimOurs}, Locks: map[string]LocksAnswer{"": firstInLine()}})
	in.Gate = open()
	out := Decide(in)
	run.Status = persisted(t, &out.Status)
	return run, in
}

// mutations: keepSlot that looks at no turn, at no place, at no rate, or that takes any rate for
// long; and a message without the slot.
func TestStatusTellsOfASlotThatIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Gate, *LocksAnswer)
		keeps  bool
	}{
		"it lost its turn, and is first": {func(*Gate, *LocksAnswer) {}, true},
		"it lost no turn":                {func(g *Gate, _ *LocksAnswer) { g.MayKeep = false }, false},
		"another one is before it":       {func(_ *Gate, a *LocksAnswer) { a.Position = 2 }, false},
		"it asks for more than there is": {func(_ *Gate, a *LocksAnswer) { a.Position = 0 }, false},
		"a rate lets it begin soon":      {func(_ *Gate, a *LocksAnswer) { a.Again = epoch.Add(time.Second) }, true},
		"a rate lets it begin in a while": {func(_ *Gate, a *LocksAnswer) {
			a.Again = epoch.Add(time.Hour)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			gate, answer := open(), firstInLine()
			c.change(&gate, &answer)
			in := letIn(Input{Run: lockedRun(), Now: epoch, Lock: held(1), Locks: map[string]LocksAnswer{"": answer}})
			in.Gate = gate
			out := Decide(in)
			until := epoch.Add(time.Minute)
			if at := out.Status.Admission.SlotExpiresAt; (at != nil) != c.keeps || at != nil && !at.Time.Equal(until) {
				t.Errorf("it keeps its slot until %v", at)
			}
			message := status.Condition(&out.Status, v1alpha1.ConditionAdmitted).Message
			if want := "Waits for lock gpus/eu, and keeps its slot of the tenant until " + until.UTC().Format(time.RFC3339) + "; "; strings.HasPrefix(message, want) != c.keeps {
				t.Errorf("it is told %q", message)
			}
			if c.keeps && (out.Wake.After(until) || out.Wake.IsZero()) {
				t.Errorf("it wakes at %s", out.Wake)
			}
		})
	}
}

// mutations: a slot that is kept anew in each decision, one that is kept beyond its time, by who is
// not first any more, or by who was admitted or is over, and a clock that was ahead
// taken for right.
func TestASlotIsKeptForAWhile(t *testing.T) {
	soon, end := epoch.Add(10*time.Second), epoch.Add(time.Minute)
	for name, c := range map[string]struct {
		at     time.Time
		change func(*v1alpha1.WorkflowRun, *Input)
		until  time.Time // zero: it is kept no longer
		waits  bool
	}{
		"for now": {soon, func(*v1alpha1.WorkflowRun, *Input) {}, end, true},
		"its end": {end, func(*v1alpha1.WorkflowRun, *Input) {}, time.Time{}, true},
		"a new process, which knows of no lost turn": {soon, func(_ *v1alpha1.WorkflowRun, in *Input) { in.Gate.MayKeep = false }, end, true},
		"another one comes before it": {soon, func(_ *v1alpha1.WorkflowRun, in *Input) {
			in.Locks = map[string]LocksAnswer{"": waitsFor}
		}, time.Time{}, true},
		"it has its locks":               {soon, func(_ *v1alpha1.WorkflowRun, in *Input) { in.Locks = map[string]LocksAnswer{"": heldWith(3)} }, time.Time{}, false},
		"it is cancelled":                {soon, func(run *v1alpha1.WorkflowRun, _ *Input) { run.Spec.Shutdown = v1alpha1.ShutdownCancel }, time.Time{}, false},
		"it is suspended":                {soon, func(run *v1alpha1.WorkflowRun, _ *Input) { run.Spec.Suspend = true }, time.Time{}, false},
		"nobody asked for its locks yet": {soon, func(_ *v1alpha1.WorkflowRun, in *Input) { in.Locks = nil }, end, true},
		"its locks are not to be had": {soon, func(_ *v1alpha1.WorkflowRun, in *Input) {
			in.Locks = map[string]LocksAnswer{"": {State: LocksUnavailable}}
		}, end, true},
		"its locks are not to be had at its end": {end, func(_ *v1alpha1.WorkflowRun, in *Input) {
			in.Locks = map[string]LocksAnswer{"": {State: LocksUnavailable}}
		}, time.Time{}, true},
		"nobody asked for its locks at its end": {end, func(_ *v1alpha1.WorkflowRun, in *Input) { in.Locks = nil }, time.Time{}, true},
		"its Workflow cannot be read at its end": {end, func(_ *v1alpha1.WorkflowRun, in *Input) {
			in.Template.Missing, in.Template.Patient = "etl", true
		}, time.Time{}, true},
		"a clock was ahead": {soon, func(run *v1alpha1.WorkflowRun, _ *Input) {
			run.Status.Admission.SlotExpiresAt = bounds.Micro(epoch.Add(time.Hour))
		}, soon.Add(time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			run, in := keepsSlot(t)
			in.Now = c.at
			c.change(run, &in)
			out := Decide(in)
			if got := KeptUntil(&v1alpha1.WorkflowRun{Status: &out.Status}); !got.Equal(c.until) {
				t.Errorf("kept until %s", got)
			}
			if a := out.Status.Admission; (a != nil && a.LockWait != nil) != c.waits {
				t.Errorf("it waits: %v", a)
			}
			if !out.Wake.IsZero() && out.Wake.Before(c.at.Add(time.Second)) {
				t.Errorf("it is looked at again after %s, though nothing is due", out.Wake.Sub(c.at))
			}
			if name == "for now" && out.Changed {
				t.Error("it is written for nothing")
			}
		})
	}
}

// A slot that is kept is there, though the gate does not say so for a moment: with it the place in
// the queue of the lock is good. It is not there any more where the gate has lost its data.
//
// mutations: passGate, or claimed, that leaves the place of who keeps its slot, that keeps
// it beyond the time of the slot, or where the slot may be gone; a report that tells of
// the gate meanwhile.
func TestWhoKeepsItsSlotKeepsItsPlaceInTheQueueOfALock(t *testing.T) {
	for name, c := range map[string]struct {
		ask   func(*Input)
		keeps bool
	}{
		"the gate lets it wait":     {func(in *Input) { in.Gate = Gate{State: GateAsked} }, true},
		"the gate's lock is busy":   {func(in *Input) { in.Gate = Gate{State: GateBusy, Cause: "x"} }, true},
		"the gate cannot be asked":  {func(in *Input) { in.Gate = Gate{State: GateUnavailable, Cause: "x"} }, true},
		"its key cannot be claimed": {func(in *Input) { in.Claim = Claim{State: ClaimUnavailable, Cause: "x"} }, true},
		"the gate is being rebuilt": {func(in *Input) { in.Gate = Gate{State: GateRebuilding} }, false},
		"the slot is gone":          {func(in *Input) { in.Gate = full(1) }, false},
		"its policy is gone":        {func(in *Input) { in.Gate = Gate{State: GateNoPolicy} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, in := keepsSlot(t)
			c.ask(&in)
			in.Now = epoch.Add(2 * time.Second)
			out := Decide(in)
			if keeps := out.Status.Admission.LockWait != nil; keeps != c.keeps || out.Changed == c.keeps {
				t.Errorf("it keeps its place: %t; it is written: %t", keeps, out.Changed)
			}
			if keeps := out.Status.Admission.SlotExpiresAt != nil; keeps != c.keeps {
				t.Errorf("it keeps its slot: %t", keeps)
			}
			in.Now = epoch.Add(time.Minute)
			if out = Decide(in); out.Status.Admission.LockWait != nil || out.Status.Admission.SlotExpiresAt != nil {
				t.Errorf("for a minute without an answer: %+v", out.Status.Admission)
			}
		})
	}
}
