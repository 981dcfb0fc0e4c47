// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// admit lets the run in if its key and its tenant's gate let it. While the run is suspended its
// queue clock does not run.
func admit(d *draft) {
	if status.Admitted(&d.st) {
		return
	}
	if d.run.Spec.Suspend {
		d.st.Admission = nil
		return
	}
	startQueueClock(d)
	if bounds.Due(d.now, d.st.Admission.SlotExpiresAt) {
		d.st.Admission.SlotExpiresAt = nil // whatever can be asked, and whatever that says
	}
	if awaitsTemplate(d) {
		return
	}
	if d.in.Parent != nil {
		admitChild(d)
		return
	}
	if !claimed(d) {
		return
	}
	passGate(d)
}

// passGate lets the run in if its tenant's gate is open, and its locks are to be had.
func passGate(d *draft) {
	switch d.in.Gate.State {
	case GateOpen:
		if !lockRun(d) {
			return
		}
		d.st.Admission.AdmittedAt, d.st.Admission.SlotExpiresAt = bounds.Second(d.now), nil
		if d.in.Policy != nil {
			d.st.Admission.Policy = d.in.Policy.Name
		}
		d.event(report.Admitted(d.st.Tenant))
	case GateUnasked:
		d.out.Needs.Admission = true
	case GateAsked, GateBusy, GateUnavailable:
		leaveUnlessKept(d)
	case GateFull, GateRebuilding, GateNoPolicy:
		leaveLockQueue(d)
	}
}

// leaveLockQueue ends the wait for locks of a run that has no slot: as long as it keeps a place in
// their queues, permits that are free are kept for it, and it cannot take them. It takes a place
// again when its gate is open, by its age as before.
func leaveLockQueue(d *draft) { d.st.Admission.LockWait, d.st.Admission.SlotExpiresAt = nil, nil }

// leaveUnlessKept is leaveLockQueue where nobody says that the run has a slot. One that keeps its
// slot has it all the same.
func leaveUnlessKept(d *draft) {
	if d.st.Admission.SlotExpiresAt == nil {
		leaveLockQueue(d)
	}
}

// longWait is how long a rate may keep a run waiting that holds a slot meanwhile.
const longWait = 10 * time.Second

// keepSlot decides whether a run that waits for its locks keeps its slot meanwhile: one that lost
// its turn there before for want of a slot does, for a while, as long as nobody is before it, and
// no rate keeps it there for long. Two kinds of lines could send it to each other for good. Whoever
// holds the locks needs no slot. A decision that ends such a time begins no other: what is known of
// those that were in vain does not count it yet.
func keepSlot(d *draft) {
	a, gate, answer := d.st.Admission, &d.in.Gate, d.in.Locks[""]
	if answer.State != facts.LocksWaiting {
		return // nobody said where it is in line
	}
	switch first := answer.Position == 1 && answer.Again.Before(d.now.Add(longWait)); {
	case first && KeptUntil(d.run).IsZero() && gate.MayKeep:
		a.SlotExpiresAt = bounds.Micro(d.now.Add(gate.Idle))
	case !first:
		a.SlotExpiresAt = nil
	default:
		a.SlotExpiresAt = bounds.Within(a.SlotExpiresAt, d.now, gate.Idle)
	}
}

// startQueueClock starts the queue clock.
func startQueueClock(d *draft) {
	if d.st.Admission == nil {
		d.st.Admission = &v1alpha1.AdmissionStatus{}
	}
	if d.st.Admission.QueuedAt == nil {
		d.st.Admission.QueuedAt = bounds.Second(d.now)
	}
}

// claimed says whether the run may go on by its idempotency key; if another run has it,
// the run ends.
func claimed(d *draft) bool {
	key := d.run.Spec.IdempotencyKey
	if key == "" {
		return true
	}
	switch d.in.Claim.State {
	case ClaimOurs:
		return true
	case ClaimUnasked:
		d.out.Needs.Claim = true
	case ClaimTaken:
		endRun(d, report.KeyTaken(&d.in.Claim, d.st.Tenant))
	case ClaimUnavailable:
		leaveUnlessKept(d)
	}
	return false
}

// setPhase is that of a run that goes on.
func setPhase(d *draft) {
	was := d.st.Phase
	d.st.Phase = v1alpha1.RunRunning
	switch {
	case d.run.Spec.Suspend:
		d.st.Phase = v1alpha1.RunSuspended
	case status.Queued(d.run, &d.st):
		d.st.Phase = v1alpha1.RunQueued
	}
	switch {
	case was != d.st.Phase && d.st.Phase == v1alpha1.RunSuspended:
		d.event(report.Suspended(&d.in))
	case was == v1alpha1.RunSuspended && d.st.Phase != was:
		d.event(report.Resumed())
	}
}

// admitChild lets a child in once its parent names it. It needs no slot, since its root has one: a
// child that waited for one could wait for its own root.
func admitChild(d *draft) {
	if !d.in.Parent.Named {
		return
	}
	d.st.Admission.AdmittedAt = bounds.Second(d.now)
	d.event(report.ChildAdmitted(&d.st))
}
