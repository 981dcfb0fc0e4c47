// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// runsOf is a run of which n steps are runs.
func runsOf(n int) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{}
	for range n {
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Run: &v1alpha1.ChildRun{}})
	}
	return run
}

// However wide the runs are on each level, there are no more of them than the one at the top may
// have.
// mutation: Child that gives each child all that the parent has, or that does not take the children
// themselves away, makes this fail.
func TestAllRunsBelowTheOneAtTheTopAreBounded(t *testing.T) {
	for _, wide := range []int{1, 2, 7, 24, 70, 200} {
		all, onLevel, nest := 0, 1, Top
		for nest.Level <= maxLevels {
			plan := Of(runsOf(min(wide, nest.Below)))
			if len(plan.Steps) == 0 {
				break
			}
			onLevel *= len(plan.Steps)
			all += onLevel
			nest = nest.Child(&plan)
		}
		t.Logf("%d on each level: %d runs", wide, all)
		if all > Top.Below || all < wide {
			t.Errorf("%d on each level: %d runs, more than %d", wide, all, Top.Below)
		}
	}
}

// mutation: Validate that does not look at nest.Below makes this fail.
func TestARunWithMoreRunsThanMayBeBelowItIsRefused(t *testing.T) {
	run := runsOf(3)
	plan := Of(run)
	got, _ := Validate(run, &plan, Nest{Level: 2, Below: 2}, nil)
	if len(got) != 1 || !strings.HasPrefix(got[0], "spec.steps: 3 steps are runs, and 2 runs may be below this one") {
		t.Errorf("%q", got)
	}
	problems, _ := Validate(run, &plan, Nest{Level: 2, Below: 3}, nil)
	for _, problem := range problems {
		if strings.Contains(problem, "may be below this one") {
			t.Error(problem)
		}
	}
}
