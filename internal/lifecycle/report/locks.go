// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// LocksTaken is the event of locks that a run or a step has from now on.
func LocksTaken(step string, held []v1alpha1.LockHold) Event {
	whose := "The run"
	if step != "" {
		whose = "Step " + step
	}
	return newDetail("LocksTaken", whose+" has "+strings.Join(facts.LockFences(held), ", "))
}

// LocksRefused is the end of a run that does not get spec.locks.
func LocksRefused(reason, message string) End {
	e := failed(reason, "spec.%s", message)
	switch reason {
	case v1alpha1.ReasonLockSuperseded:
		e.Phase = v1alpha1.RunCancelled
	case v1alpha1.ReasonLockQueueTimeout:
		e.Phase = v1alpha1.RunTimedOut
	}
	return e
}

// LocksRefusedText says why locks are not to be had.
func LocksRefusedText(a *facts.LocksAnswer) string {
	text := map[string]string{
		v1alpha1.ReasonLocksBusy:        "has no room, and who comes then is refused (onBusy DropNewest)" + heldBy(a),
		v1alpha1.ReasonLockQueueFull:    "has as many that wait as may",
		v1alpha1.ReasonLockSuperseded:   "was waited for, and a later one came that waits instead",
		v1alpha1.ReasonLockUnusable:     "cannot be used: " + a.Cause,
		v1alpha1.ReasonLockDeadlock:     "is held by runs that wait for what this one holds",
		v1alpha1.ReasonLockQueueTimeout: "was waited for in vain",
	}[a.Reason]
	return bounds.Cut(fmt.Sprintf("locks: lock %s %s", a.Lock, text), bounds.MaxMessageChars)
}

// LocksTimedOutText says that locks were waited for in vain.
func LocksTimedOutText(a *facts.LocksAnswer) string {
	return bounds.Cut(fmt.Sprintf("locks: lock %s was waited for longer than queue.ttlSeconds (%d)%s", a.Lock, int(a.TTL.Seconds()), heldBy(a)), bounds.MaxMessageChars)
}

func heldBy(a *facts.LocksAnswer) string {
	if len(a.Holders) == 0 {
		return ""
	}
	return "; it is held by " + strings.Join(a.Holders, ", ")
}

// locksText says what is waited for, and whether with a slot; what comes after the first semicolon
// is of one moment.
func locksText(a *facts.LocksAnswer, kept, at string) string {
	place := fmt.Sprintf("place %d of %d in its queue at %s", a.Position, a.Queued, at)
	if a.Position == 0 {
		place = "no place in a queue at " + at + ", as more permits are asked for than there are"
	}
	text := "Waits for lock " + a.Lock + kept + momentSeparator + place
	if len(a.Holders) > 0 {
		text += ", held by " + strings.Join(a.Holders, ", ")
	}
	if a.Ahead != "" {
		text += ", behind " + a.Ahead
	}
	if !a.Again.IsZero() {
		text += ", until its rate lets one begin at " + a.Again.UTC().Format(time.RFC3339)
	}
	return bounds.Cut(text, bounds.MaxMessageChars)
}

// idleReason is that of a run of which nothing is with workers, and nothing waits by itself: a step
// that could begin may lack its locks.
func (r *Report) idleReason() string {
	for i := range r.st.Steps {
		if s := &r.st.Steps[i]; s.LockWait != nil || itemWaiting(s) != nil {
			return v1alpha1.ReasonWaitingForLock
		}
	}
	return v1alpha1.ReasonRunning
}

// itemWaiting is the item of a step that waits for its locks since longest; nil: none does.
func itemWaiting(s *v1alpha1.StepStatus) (first *v1alpha1.ItemLocks) {
	if s.ForEach == nil {
		return nil
	}
	for i := range s.ForEach.Locks {
		if l := &s.ForEach.Locks[i]; l.LockWait != nil && (first == nil || l.LockWait.StartedAt.Time.Before(first.LockWait.StartedAt.Time)) {
			first = l
		}
	}
	return first
}

// itemsWaitText says which item of a step waits since longest, and for what; "": none does.
func itemsWaitText(s *v1alpha1.StepStatus) string {
	l := itemWaiting(s)
	if l == nil {
		return ""
	}
	return fmt.Sprintf(", item %d", l.Item) + waitText(l.LockWait)
}

// whyNotLocked is why a run that has its slot is not admitted; "": its locks are not why.
func (r *Report) whyNotLocked(at string) (reason, message string) {
	a := r.in.Locks[""]
	switch {
	case r.in.Gate.State != facts.GateOpen:
	case a.State == facts.LocksWaiting:
		return v1alpha1.ReasonWaitingForLock, locksText(&a, keptText(r.st), at)
	case a.State == facts.LocksUnavailable:
		return v1alpha1.ReasonAdmissionUnavailable, "Locks cannot be taken now" + momentSeparator + bounds.Cut(a.Cause, bounds.MaxMessageChars/2)
	}
	return "", ""
}

// keptText says that a run keeps its slot while it waits for its locks; "": it does not.
func keptText(st *v1alpha1.WorkflowRunStatus) string {
	if !status.KeepsSlot(st) {
		return ""
	}
	return ", and keeps its slot of the tenant until " + bounds.TimeText(st.Admission.SlotExpiresAt)
}

// lockWaitText says what a step waits for that could begin; "": it could not.
func lockWaitText(s *v1alpha1.StepStatus) string {
	if s.LockWait == nil {
		return ""
	}
	return s.Name + waitText(s.LockWait)
}

func waitText(w *v1alpha1.LocksWait) string {
	return fmt.Sprintf(" waits for lock %s since %s", w.Lock, w.StartedAt.UTC().Format(time.RFC3339))
}

// holderWords begin what is said of who had a lock when the wait for it began.
const holderWords = ", held then by "

// holdersText names who had the lock that a step, or the item of it that is told of, waits for,
// when that wait began: what was said then stands, since each change of a message is a write.
func holdersText(r *Report, i int) string {
	s := &r.st.Steps[i]
	begin, part, wait := lockWaitText(s), s.Name, s.LockWait
	if l := itemWaiting(s); l != nil && s.Phase == v1alpha1.StepRunning {
		begin, part, wait = itemsWaitText(s), l.Part(s.Name), l.LockWait
	}
	if wait == nil {
		return ""
	}
	if was := r.said(begin); was != "" {
		return saidOfHolders(was[len(begin):])
	}
	if a := r.in.Locks[part]; a.Lock == wait.Lock && len(a.Holders) > 0 {
		return holderWords + bounds.Cut(strings.Join(a.Holders, ", "), bounds.MaxMessageChars/4)
	}
	return ""
}

// saidOfHolders is what a message says of holders at its beginning; "": nothing.
func saidOfHolders(text string) string {
	if !strings.HasPrefix(text, holderWords) {
		return ""
	}
	held, _, _ := strings.Cut(text, ":") // more may be said of the step
	return held
}
