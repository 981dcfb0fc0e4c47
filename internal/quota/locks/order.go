// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// order is what keeps steps of a run from beginning in the decision that comes after its status:
// the locks of such a step were not granted, as they are asked for when it is about to begin.
type order struct {
	steps  map[string]*v1alpha1.Step
	phases map[string]v1alpha1.StepPhase
	ends   map[string]bool // see mayEnd
}

// mayBegin are the steps of a run that may begin in the decision that comes after its status, or
// have begun. For example: b depends on a, a job. b may begin once status says that a is under way.
//
// Those of spec.finally are among them at any time: the decision by which spec.steps end begins
// them, too. So are all steps of a run that has not begun and takes over those of another, and of
// one that a newer operator writes, whose rules are not known.
func mayBegin(run *v1alpha1.WorkflowRun) (all []v1alpha1.Step) {
	all = slices.Concat(run.Spec.Steps, run.Spec.Finally)
	f := factOf(run)
	if f.unread() || run.Spec.StartFrom != nil && !f.begun() {
		return all
	}
	o := order{steps: map[string]*v1alpha1.Step{}, phases: map[string]v1alpha1.StepPhase{}, ends: map[string]bool{}}
	for i := range all {
		o.steps[all[i].Name] = &all[i]
	}
	for _, s := range stepsOf(run) {
		o.phases[s.Name] = s.Phase
	}
	some := make([]v1alpha1.Step, 0, len(all))
	for i := range all {
		if o.mayBegin(&all[i]) {
			some = append(some, all[i])
		}
	}
	return some
}

func (o *order) mayBegin(s *v1alpha1.Step) bool {
	return !slices.ContainsFunc(s.DependsOn, func(name string) bool { return !o.mayEnd(name) })
}

// mayEnd says whether those that depend on a step may begin in the next decision: it is over, or
// under way, or may begin and end in one decision. A job does not, unless it is skipped, or fails
// as it begins and the run goes on.
func (o *order) mayEnd(name string) bool {
	if may, known := o.ends[name]; known {
		return may
	}
	o.ends[name] = true // for a ring of dependencies, which no run has that began
	s, known := o.steps[name]
	pending := o.phases[name] == "" || o.phases[name] == v1alpha1.StepPending
	if known && pending {
		atOnce := s.Job == nil || s.When != "" || s.ForEach != nil || s.OnFailure == v1alpha1.FailureContinue
		o.ends[name] = atOnce && o.mayBegin(s)
	}
	return o.ends[name]
}
