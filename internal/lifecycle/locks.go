// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// locking is what became of the locks of a run or a step.
type locking struct {
	held    bool
	refused string // a reason; "": they are waited for, if they are not held
	message string
}

// lockRun says whether a run that may be admitted has spec.locks. A run that waits for them, or is
// refused, is not admitted.
func lockRun(d *draft) bool {
	if len(d.run.Spec.Locks) == 0 {
		return true
	}
	l := takeLocks(d, render.OfRun, d.run.Spec.Locks, &d.st.Locks, &d.st.Admission.LockWait)
	if l.refused != "" {
		endRun(d, report.LocksRefused(l.refused, l.message))
	}
	return l.held
}

// lockStep says whether a step that is about to begin has its locks. Not ok: it does not begin now.
func lockStep(d *draft, i int) (is prepared, ok bool) {
	s, step := &d.st.Steps[i], &d.plan.Steps[i]
	if len(step.Locks) == 0 || len(s.Locks) > 0 {
		return prepared{}, true
	}
	l := takeLocks(d, i, step.Locks, &s.Locks, &s.LockWait)
	if l.refused != "" {
		return prepared{problem: &v1alpha1.StepError{Code: l.refused, Message: l.message}}, false
	}
	return prepared{lacking: !l.held}, l.held
}

// takeLocks takes what was granted into status, or the wait for it.
func takeLocks(d *draft, i int, requests []v1alpha1.LockRequest, held *[]v1alpha1.LockHold, wait **v1alpha1.LocksWait) locking {
	wants, err := d.view.Locks(i, requests)
	switch {
	case err == nil:
	case leaveForNext(d, err) || d.store.lack(err):
		return locking{}
	default:
		return locking{refused: v1alpha1.ReasonLockUnusable, message: bounds.Cut(err.Error(), bounds.MaxMessageChars)}
	}
	ask := facts.LocksAsk{Wants: wants}
	if i != render.OfRun {
		ask.Step = d.st.Steps[i].Name
	}
	answer := d.in.Locks[ask.Step]
	switch answer.State {
	case facts.LocksUnasked:
		d.out.Needs.Locks = append(d.out.Needs.Locks, ask)
	case facts.LocksHeld:
		*held, *wait = facts.HoldsOf(&ask, answer.Fence), nil
		d.event(report.LocksTaken(ask.Step, *held))
		return locking{held: true}
	case facts.LocksRefused:
		*wait = nil
		return locking{refused: answer.Reason, message: report.LocksRefusedText(&answer)}
	case facts.LocksWaiting:
		return awaitLocks(d, &answer, wait)
	case facts.LocksUnavailable:
	}
	return locking{}
}

// awaitLocks notes the wait, once, or ends it when its time is over.
func awaitLocks(d *draft, answer *facts.LocksAnswer, wait **v1alpha1.LocksWait) locking {
	if *wait == nil {
		*wait = &v1alpha1.LocksWait{Lock: answer.Lock, StartedAt: *bounds.Second(d.now)}
	}
	if end := lockWaitEnd(*wait, answer); !end.IsZero() && !d.now.Before(end) {
		*wait = nil
		return locking{refused: v1alpha1.ReasonLockQueueTimeout, message: report.LocksTimedOutText(answer)}
	}
	return locking{}
}

// lockWaitEnd is when a wait is over by its time; zero: never.
func lockWaitEnd(w *v1alpha1.LocksWait, answer *facts.LocksAnswer) time.Time {
	if w == nil || answer.TTL == 0 {
		return time.Time{}
	}
	return w.StartedAt.Add(answer.TTL)
}

// lockWaits adds when waits for locks are over by their time, or by that of a rate, as far as it is
// known.
func lockWaits(d *draft, e *earliest) {
	if a := d.in.Locks[""]; d.st.Admission != nil {
		addLockWait(e, d.st.Admission.LockWait, &a)
	}
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; s.LockWait != nil {
			a := d.in.Locks[s.Name]
			addLockWait(e, s.LockWait, &a)
		}
	}
}

func addLockWait(e *earliest, w *v1alpha1.LocksWait, answer *facts.LocksAnswer) {
	e.add(lockWaitEnd(w, answer))
	if w != nil {
		e.add(answer.Again)
	}
}

// releaseLocks takes out of status what nobody needs any more: the shell gives it back after the
// write.
func releaseLocks(d *draft) {
	over := d.st.CompletedAt != nil
	if over {
		d.st.Locks = nil
	}
	if over && d.st.Admission != nil {
		d.st.Admission.LockWait = nil
	}
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if over || status.Ended(s.Phase) {
			s.Locks, s.LockWait = nil, nil
		}
	}
}

// leaveLockQueues ends the waits of a run whose steps may not begin.
func leaveLockQueues(d *draft) {
	for i := range d.st.Steps {
		d.st.Steps[i].LockWait = nil
	}
}
