// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/schedule"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// problemsOf is what the operator would refuse of an object that the API server takes. Open: part
// of the work is that of a Workflow, which is not looked at.
func problemsOf(object client.Object) (problems []string, open bool) {
	switch o := object.(type) {
	case *v1alpha1.WorkflowRun:
		return problemsOfRun(createdNow(o), nil, "spec."), o.Spec.WorkflowRef != nil
	case *v1alpha1.Workflow:
		c := template.Unnamed(o)
		run := c.Effective(&v1alpha1.WorkflowRun{}, []byte("{}"))
		return append(c.Problems(), problemsOfRun(run, c.InputNames(), "spec.template.")...), false
	case *v1alpha1.Schedule:
		return problemsOfSchedule(&o.Spec)
	default:
		return nil, false
	}
}

// createdNow is a run as it would be created now: a delay until then has to be over later. What a
// run with startFrom waits for may be over.
func createdNow(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	if run.Spec.StartFrom != nil {
		return run
	}
	created := *run
	created.CreationTimestamp = metav1.Now()
	return &created
}

// problemsOfRun is what is wrong with the steps of a run, if it has some of its own, in fields that
// begin as said.
func problemsOfRun(run *v1alpha1.WorkflowRun, inputs []string, prefix string) []string {
	if run.Spec.WorkflowRef != nil {
		return nil
	}
	plan := dag.Of(run)
	plan.Inputs = inputs
	problems, _ := dag.Validate(run, &plan, dag.Top, nil)
	for i := range problems {
		problems[i] = prefix + strings.TrimPrefix(problems[i], "spec.")
	}
	return problems
}

func problemsOfSchedule(spec *v1alpha1.ScheduleSpec) (problems []string, open bool) {
	if _, err := schedule.Timetable(&spec.ScheduleTiming); err != nil {
		problems = append(problems, err.Error())
	}
	if problem := schedule.Problem(spec); problem != "" {
		problems = append(problems, problem)
	}
	run, err := schedule.RunSpec(&spec.RunTemplate)
	if err != nil {
		return append(problems, "spec.runTemplate.spec: "+err.Error()), false
	}
	found := problemsOfRun(createdNow(&v1alpha1.WorkflowRun{Spec: run}), nil, "spec.runTemplate.spec.")
	return append(problems, found...), run.WorkflowRef != nil
}
