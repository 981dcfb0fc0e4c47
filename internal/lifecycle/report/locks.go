// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
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

// heldThen and heldAt begin what is said of who had a lock: when the wait for it began, or at a
// later moment, which follows.
const (
	heldThen = ", held then by "
	heldAt   = ", held at "
)

// holdersText names who had the lock that a step, or the item of it that is told of, waits for, and
// when: at first, or where that was not told, when this is said first. It stands from then on,
// since each change of a message is a write.
func holdersText(r *Report, i int) string {
	s := &r.st.Steps[i]
	begin, words, part, wait := lockWaitText(s), "", s.Name, s.LockWait
	if l := itemWaiting(s); l != nil && s.Phase == v1alpha1.StepRunning {
		begin, words, part, wait = itemsBegin(s), itemsWaitText(s), l.Part(s.Name), l.LockWait
	}
	if wait == nil {
		return ""
	}
	if was := saidOfHolders(r.saidOf(begin, words)); was != "" {
		return was
	}
	a := r.in.Locks[part]
	if a.Lock != wait.Lock || len(a.Holders) == 0 {
		return ""
	}
	had := bounds.Cut(strings.Join(r.holders(&a), ", "), bounds.MaxMessageChars/4)
	if now := bounds.Second(r.now); !wait.StartedAt.Equal(now) {
		return heldAt + now.Format(time.RFC3339) + " by " + had
	}
	return heldThen + had
}

// saidOfHolders is what a message says of holders at its beginning; "": nothing.
func saidOfHolders(text string) string {
	if !strings.HasPrefix(text, heldThen) && !strings.HasPrefix(text, heldAt) {
		return ""
	}
	held, _, _ := strings.Cut(text, ": ") // more may be said of the step
	return held
}

// holders are those of a lock that is waited for. The run is one itself where another step or item
// of it has the lock: its own name would read as if the run waited for what it has.
func (r *Report) holders(a *facts.LocksAnswer) []string {
	own := r.run.Namespace + "/" + r.run.Name
	if !slices.Contains(a.Holders, own) || !holds(r.st, a.Lock) {
		return a.Holders
	}
	all := slices.DeleteFunc(slices.Clone(a.Holders), func(name string) bool { return name == own })
	return append(all, "another part of this run")
}

// holds says whether status has a lock, of the run or of any part of it.
func holds(st *v1alpha1.WorkflowRunStatus, lock string) bool {
	is := func(h v1alpha1.LockHold) bool { return h.Name == lock }
	return slices.ContainsFunc(st.Locks, is) || slices.ContainsFunc(st.Steps, func(s v1alpha1.StepStatus) bool {
		return slices.ContainsFunc(s.Locks, is) || s.ForEach != nil && slices.ContainsFunc(s.ForEach.Locks, func(l v1alpha1.ItemLocks) bool {
			return slices.ContainsFunc(l.Locks, is)
		})
	})
}
