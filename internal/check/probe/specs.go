// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/schedule"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// judgement is what the operator makes of an object that the API server takes.
type judgement struct {
	problems []string // for which it is refused
	idle     []string // fields that do nothing
	open     bool     // a part of the work is that of a Workflow, which is not looked at
}

// judged is empty of kinds that have no work.
func judged(object client.Object) judgement {
	switch o := object.(type) {
	case *v1alpha1.WorkflowRun:
		return judgedRun(createdNow(o), nil, "spec.")
	case *v1alpha1.Workflow:
		c := template.Unnamed(o)
		j := judgedRun(c.Effective(&v1alpha1.WorkflowRun{}, []byte("{}")), c.InputNames(), "spec.template.")
		j.problems = append(c.Problems(), j.problems...)
		return j
	case *v1alpha1.Schedule:
		return judgedSchedule(o)
	default:
		return judgement{}
	}
}

// createdNow is a run as it would be created now: a delay until then has to be over later. What a
// run with startFrom waits for may be over, as may what those of Workflows and Schedules do.
func createdNow(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	if run.Spec.StartFrom != nil {
		return run
	}
	created := *run
	created.CreationTimestamp = metav1.Now()
	return &created
}

// judgedRun is of the steps of a run, if it has some of its own, in fields that begin as said.
func judgedRun(run *v1alpha1.WorkflowRun, inputs []string, prefix string) judgement {
	if run.Spec.WorkflowRef != nil {
		return judgement{open: true}
	}
	plan := dag.Of(run)
	plan.Inputs = inputs
	problems, _ := dag.Validate(run, &plan, dag.Top, nil)
	return judgement{problems: placed(problems, prefix), idle: placed(dag.ForJobs(run, &plan, dag.Top), prefix)}
}

// placed are texts that begin with a field of a run's spec, which stands elsewhere.
func placed(texts []string, prefix string) []string {
	for i := range texts {
		texts[i] = prefix + strings.TrimPrefix(texts[i], "spec.")
	}
	return texts
}

func judgedSchedule(s *v1alpha1.Schedule) judgement {
	var problems []string
	if _, err := schedule.Timetable(&s.Spec.ScheduleTiming); err != nil {
		problems = append(problems, err.Error())
	}
	if problem := schedule.Problem(&s.Spec); problem != "" {
		problems = append(problems, problem)
	}
	run, err := schedule.RunSpec(s)
	if err != nil {
		return judgement{problems: append(problems, "spec.runTemplate.spec: "+err.Error())}
	}
	const prefix = "spec.runTemplate.spec."
	j := judgedRun(&v1alpha1.WorkflowRun{Spec: run}, nil, prefix)
	j.problems = slices.Concat(problems, placed(dag.OutOfBounds(&run), prefix), j.problems)
	return j
}
