// SPDX-License-Identifier: Apache-2.0

package book

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// HandOvers are the times from the last result that a step waited for to its job in a worker's
// hands, of all steps that wait for others. finals are the runs in the end.
func (l *Ledger) HandOvers(finals []v1alpha1.WorkflowRun) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for i := range finals {
		run := &finals[i]
		if run.Unwritten() {
			continue
		}
		last := map[string]*Attempt{}
		for k := range run.Status.Steps {
			last[run.Status.Steps[k].Name] = l.attempts[run.Status.Steps[k].JobID]
		}
		for k := range run.Spec.Steps {
			if d, ok := l.handOver(run, &run.Spec.Steps[k], last); ok {
				all = append(all, d)
			}
		}
	}
	return all
}

// handOver is that of one step; false: it waits for none, or not all was seen.
func (l *Ledger) handOver(run *v1alpha1.WorkflowRun, step *v1alpha1.Step, last map[string]*Attempt) (time.Duration, bool) {
	first := l.attempts[protocol.JobID{RunUID: string(run.UID), Step: step.Name, Item: protocol.NoItem, Attempt: 1}.String()]
	if first == nil || len(step.DependsOn) == 0 {
		return 0, false
	}
	var ready time.Time
	for _, on := range step.DependsOn {
		a := last[on]
		if a == nil || a.answered.IsZero() {
			return 0, false
		}
		if a.answered.After(ready) {
			ready = a.answered
		}
	}
	return max(0, first.taken.Sub(ready)), true
}
