// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// WaitsFor tells of a run that waits for locks who has them, and its places.
func (a *Answer) WaitsFor(locks []Lock) {
	for i := range locks {
		l := &locks[i]
		at := slices.IndexFunc(l.Waiters, func(w LockWaiter) bool { return w.Namespace == a.Namespace && w.Name == a.Name })
		if at < 0 {
			continue
		}
		a.Locks = append(a.Locks, l.Bounded(maxNames))
		w := &l.Waiters[at]
		text := fmt.Sprintf("place %d of %d for it; %s", w.Position, l.Waiting, w.Why)
		var holders []string
		for k := range l.Holders {
			h := &l.Holders[k]
			holders = append(holders, whose(h.Namespace, h.Name, h.Step, h.Item))
		}
		if len(holders) > 0 {
			text += "; held by " + names(holders)
		}
		facts := []Fact{{About: "lock " + l.Lock, Text: Printable(text, maxTextChars), Since: utc(w.Since), Until: w.Until, Then: "it ends as LockQueueTimeout"}}
		for _, more := range []string{l.beyond(), l.unplaced()} {
			if more != "" {
				facts = append(facts, Fact{About: "lock " + l.Lock, Text: Printable(more, maxTextChars)})
			}
		}
		help := slices.IndexFunc(a.Facts, func(f Fact) bool { return f.About == "help" })
		if help < 0 {
			help = len(a.Facts)
		}
		a.Facts = slices.Insert(a.Facts, help, facts...)
	}
}

// WaitsForLocks says whether a run, or one of its steps, waits for locks across runs.
func WaitsForLocks(run *v1alpha1.WorkflowRun) bool {
	st := statusOf(run)
	return st.CompletedAt == nil && (lockWait(st) != nil || slices.ContainsFunc(st.Steps, func(s v1alpha1.StepStatus) bool { return lockWaitOf(&s) != nil }))
}

// WaitsByExpressions says whether a run waits for locks, and expressions may tell for which. Of one
// that follows a Workflow these are in its revision.
func WaitsByExpressions(run *v1alpha1.WorkflowRun) bool {
	if !WaitsForLocks(run) {
		return false
	}
	asks := func(s v1alpha1.Step) bool {
		return byExpressions(s.Locks) || s.ForEach != nil && byExpressions(s.ForEach.Locks)
	}
	return run.Spec.WorkflowRef != nil || byExpressions(run.Spec.Locks) ||
		slices.ContainsFunc(run.Spec.Steps, asks) || slices.ContainsFunc(run.Spec.Finally, asks)
}

// byExpressions says whether these are several locks, of which some are named by expressions.
func byExpressions(requests []v1alpha1.LockRequest) bool {
	named := func(r v1alpha1.LockRequest) bool { return strings.Contains(r.Mutex+r.Key, "${") }
	return len(requests) > 1 && slices.ContainsFunc(requests, named)
}

// lockWait is the wait of a run for spec.locks; nil: it does not wait.
func lockWait(st *v1alpha1.WorkflowRunStatus) *v1alpha1.LocksWait {
	if st.Admission == nil {
		return nil
	}
	return st.Admission.LockWait
}
