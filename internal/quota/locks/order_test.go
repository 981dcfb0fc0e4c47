// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// What cannot have begun was granted nothing: nobody has to wait for its locks.
//
// mutations: a mayBegin that looks at no dependency, at those of status only, or that has a job
// over which did not begin; a mayEnd without one of its reasons, or that does not look further up;
// one that leaves out spec.finally, or trusts what a newer operator wrote.
func TestOnlyWhatMayHaveBegunMayHaveBeenGrantedLocks(t *testing.T) {
	step := func(name, after string, change func(*v1alpha1.Step)) v1alpha1.Step {
		s := v1alpha1.Step{Name: name, Job: &v1alpha1.Job{Topic: "t"}, DependsOn: strings.Fields(after), Locks: []v1alpha1.LockRequest{{Mutex: name}}}
		if change != nil {
			change(&s)
		}
		return s
	}
	first := func(change func(*v1alpha1.Step)) []v1alpha1.Step {
		return []v1alpha1.Step{step("a", "", change), step("b", "a", nil)}
	}
	for name, c := range map[string]struct {
		steps  []v1alpha1.Step
		phases []v1alpha1.StepPhase // nil: it has not begun
		change func(*v1alpha1.WorkflowRun)
		want   string
	}{
		"it has not begun":          {steps: first(nil), want: "a"},
		"a did not begin":           {steps: first(nil), phases: []v1alpha1.StepPhase{"Pending", "Pending"}, want: "a"},
		"a is under way":            {steps: first(nil), phases: []v1alpha1.StepPhase{"Dispatched", "Pending"}, want: "a b"},
		"a is over":                 {steps: first(nil), phases: []v1alpha1.StepPhase{"Succeeded", "Pending"}, want: "b"},
		"a may be skipped":          {steps: first(func(s *v1alpha1.Step) { s.When = "false" }), want: "a b"},
		"a may fail":                {steps: first(func(s *v1alpha1.Step) { s.OnFailure = v1alpha1.FailureContinue }), want: "a b"},
		"a is a list":               {steps: first(func(s *v1alpha1.Step) { s.ForEach = &v1alpha1.ForEach{Items: "${[]}"} }), want: "a b"},
		"a waits for a moment":      {steps: first(func(s *v1alpha1.Step) { s.Job, s.Delay = nil, &v1alpha1.Delay{} }), want: "a b"},
		"one between is skipped":    {steps: []v1alpha1.Step{step("a", "", nil), step("b", "a", func(s *v1alpha1.Step) { s.When = "x" }), step("c", "b", nil)}, want: "a"},
		"the same, a is under way":  {steps: []v1alpha1.Step{step("a", "", nil), step("b", "a", func(s *v1alpha1.Step) { s.When = "x" }), step("c", "b", nil)}, phases: []v1alpha1.StepPhase{"Running", "Pending", "Pending"}, want: "a b c"},
		"one of two did not begin":  {steps: []v1alpha1.Step{step("a", "", nil), step("b", "", nil), step("c", "a b", nil)}, phases: []v1alpha1.StepPhase{"Running", "Pending", "Pending"}, want: "a b"},
		"a step at its end":         {steps: first(nil), change: func(r *v1alpha1.WorkflowRun) { r.Spec.Finally = []v1alpha1.Step{step("f", "", nil)} }, want: "a f"},
		"it goes on from another":   {steps: first(nil), change: func(r *v1alpha1.WorkflowRun) { r.Spec.StartFrom = &v1alpha1.StartFrom{Run: "x"} }, want: "a b"},
		"the same, and has begun":   {steps: first(nil), phases: []v1alpha1.StepPhase{"Pending", "Pending"}, change: func(r *v1alpha1.WorkflowRun) { r.Spec.StartFrom = &v1alpha1.StartFrom{Run: "x"} }, want: "a"},
		"a newer operator wrote it": {steps: first(nil), phases: []v1alpha1.StepPhase{"Pending", "Pending"}, change: func(r *v1alpha1.WorkflowRun) { r.Status.MinWriterVersion = v1alpha1.WriterVersion + 1 }, want: "a b"},
		"no lock has such a name":   {steps: []v1alpha1.Step{step("a", "", func(s *v1alpha1.Step) { s.Locks[0].Mutex = "a b" }), step("b", "", nil)}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: c.steps}}
			run.UID, run.Name, run.Namespace, run.ResourceVersion = "r", "r", "ns", "10"
			for i, phase := range c.phases {
				if i == 0 {
					run.Status = &v1alpha1.WorkflowRunStatus{}
				}
				run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: c.steps[i].Name, Phase: phase})
			}
			if c.change != nil {
				c.change(run)
			}
			all, err := grantable(t.Context(), New(Options{}), run)
			must(t, err)
			var got []string
			for _, h := range all {
				got = append(got, strings.TrimPrefix(h.Ticket.ID, "r/"))
			}
			if !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}
