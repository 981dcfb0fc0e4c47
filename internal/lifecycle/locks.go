// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
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
	wants, err := wantsOf(d, "", d.run.Spec.Locks, d.st.Admission.LockWait, func() ([]any, error) { return d.view.Keys(render.OfRun, d.run.Spec.Locks) })
	l := takeLocks(d, asking{wants: wants, err: err}, &d.st.Locks, &d.st.Admission.LockWait)
	if l.refused != "" {
		endRun(d, report.LocksRefused(l.refused, l.message))
	}
	keepSlot(d)
	return l.held
}

// lockStep says whether a step that is about to begin has its locks. Not ok: it does not begin now.
func lockStep(d *draft, i int) (is prepared, ok bool) {
	s, step := &d.st.Steps[i], &d.plan.Steps[i]
	if len(step.Locks) == 0 || len(s.Locks) > 0 {
		return prepared{}, true
	}
	wants, err := wantsOf(d, s.Name, step.Locks, s.LockWait, func() ([]any, error) { return d.view.Keys(i, step.Locks) })
	before := len(d.out.Needs.Locks)
	l := takeLocks(d, asking{part: s.Name, fatal: fatal(d, i), wants: wants, err: err}, &s.Locks, &s.LockWait)
	if dag.TakesPlace(step) && len(d.out.Needs.Locks) > before {
		d.asks[i] = true
	}
	d.locksAway = d.locksAway || d.in.Locks[s.Name].State == facts.LocksUnavailable
	if l.refused != "" {
		return prepared{problem: &v1alpha1.StepError{Code: l.refused, Message: l.message}}, false
	}
	return prepared{lacking: !l.held}, l.held
}

// lockItem says whether an item that is about to go out has its locks. One that is refused fails.
// There is no r if all keys are known.
func lockItem(d *draft, it *fanout.Items, r *render.ItemLocks, item int) bool {
	has := it.LocksOf(item)
	if len(has.Locks) > 0 {
		return true // its input was left for this decision
	}
	part := has.Part(d.st.Steps[it.Step].Name)
	wants, err := wantsOf(d, part, d.plan.Steps[it.Step].ForEach.Locks, has.LockWait, func() ([]any, error) { return r.Keys(item) })
	ends := d.plan.Steps[it.Step].ForEach.OnItemFailure != v1alpha1.Collect
	l := takeLocks(d, asking{part: part, item: true, fatal: ends, wants: wants, err: err}, &has.Locks, &has.LockWait)
	if l.refused != "" {
		d.progressed++
		itemFailed(d, it, item, v1alpha1.StepError{Code: l.refused, Message: l.message})
	}
	return l.held
}

// wantsOf are the locks that a part of a run needs. Their keys are evaluated when it begins to
// wait: while it does, it takes nothing of what a decision may read.
func wantsOf(d *draft, part string, requests []v1alpha1.LockRequest, wait *v1alpha1.LocksWait, evaluate func() ([]any, error)) ([]facts.LockWant, error) {
	if wants, known := knownWants(d, part, requests, wait); known {
		d.store.keys[keysOf(part)] = d.in.Lists[keysOf(part)]
		return wants, nil
	}
	keys, err := evaluate()
	if err != nil {
		return nil, err
	}
	d.store.keys[keysOf(part)] = keys
	return render.Wants(d.run.Namespace, requests, keys)
}

// knownWants are the locks that status has the part wait for, by the keys that an earlier decision
// evaluated. Keys of a decision that was not written may be others: it knew other results. A glance
// leaves what waits to the decision that asks for the locks.
func knownWants(d *draft, part string, requests []v1alpha1.LockRequest, wait *v1alpha1.LocksWait) (wants []facts.LockWant, known bool) {
	keys := d.in.Lists[keysOf(part)]
	if wait == nil || len(keys) != len(requests) || d.in.Glance {
		return nil, false
	}
	wants, err := render.Wants(d.run.Namespace, requests, keys)
	return wants, err == nil && slices.ContainsFunc(wants, func(w facts.LockWant) bool { return w.Name == wait.Lock })
}

// keysOf is the name of the keys of a part among Lists: no step has it.
func keysOf(part string) string { return "locks/" + part }

// rememberKeys has the keys kept of the locks that steps and items wait for.
func rememberKeys(d *draft) {
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if s.LockWait != nil {
			keepList(d, keysOf(s.Name), d.store.keys)
		}
		for _, l := range itemLocks(s) {
			if l.LockWait != nil {
				keepList(d, keysOf(l.Part(s.Name)), d.store.keys)
			}
		}
	}
}

// asking is what a part of a run needs: err is why that is not known.
type asking struct {
	part  string
	item  bool // one of many: events tell of steps
	fatal bool // see LocksAsk
	wants []facts.LockWant
	err   error
}

// takeLocks takes what was granted into status, or the wait for it.
func takeLocks(d *draft, a asking, held *[]v1alpha1.LockHold, wait **v1alpha1.LocksWait) locking {
	switch {
	case a.err == nil:
	case leaveForNext(d, a.err) || d.store.lack(a.err):
		return locking{}
	default:
		return locking{refused: v1alpha1.ReasonLockUnusable, message: bounds.Cut(a.err.Error(), bounds.MaxMessageChars)}
	}
	ask := facts.LocksAsk{Part: a.part, Wants: a.wants, Fatal: a.fatal}
	answer := d.in.Locks[ask.Part]
	switch answer.State {
	case facts.LocksUnasked:
		d.out.Needs.Locks = append(d.out.Needs.Locks, ask)
	case facts.LocksHeld:
		*held, *wait = facts.HoldsOf(&ask, answer.Fence), nil
		if !a.item {
			d.event(report.LocksTaken(ask.Part, *held))
		}
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
		d.progressed++ // it is written, and what waits is not evaluated again
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
		if until := d.st.Admission.SlotExpiresAt; until != nil {
			e.add(until.Time)
		}
	}
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if s.LockWait != nil {
			a := d.in.Locks[s.Name]
			addLockWait(e, s.LockWait, &a)
		}
		for _, l := range itemLocks(s) {
			a := d.in.Locks[l.Part(s.Name)]
			addLockWait(e, l.LockWait, &a)
		}
	}
}

// itemLocks are those of the items of a step.
func itemLocks(s *v1alpha1.StepStatus) []v1alpha1.ItemLocks {
	if s.ForEach == nil {
		return nil
	}
	return s.ForEach.Locks
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
		leaveLockQueue(d)
	}
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if over || status.Ended(s.Phase) {
			s.Locks, s.LockWait = nil, nil
			if s.ForEach != nil {
				s.ForEach.Locks = nil
			}
		}
	}
}

// pruneAsks takes back the questions of what is over: a grant may have another run cancelled.
func pruneAsks(d *draft) {
	if d.st.CompletedAt != nil {
		d.out.Needs.Locks = nil
	}
	d.out.Needs.Locks = slices.DeleteFunc(d.out.Needs.Locks, func(ask facts.LocksAsk) bool {
		step, _, _ := strings.Cut(ask.Part, "/")
		return slices.ContainsFunc(d.st.Steps, func(s v1alpha1.StepStatus) bool { return s.Name == step && status.Ended(s.Phase) })
	})
}

// leaveLockQueues ends the waits of a run whose steps may not begin.
func leaveLockQueues(d *draft) {
	for i := range d.st.Steps {
		d.st.Steps[i].LockWait = nil
		if it := d.items[i]; it != nil {
			it.LeaveLines()
		}
	}
}
