// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"fmt"

	kjson "sigs.k8s.io/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// maxLevels bounds how deep runs are nested, the one at the top included.
const maxLevels = 5

// Nest is where a run is among those that are nested.
//
// Example: the run at the top may have 5,000 runs below it. It has 200 steps that are runs. So each
// of these may have (5000 - 200) / 200 = 24 below it, whatever the others have.
type Nest struct {
	Level int // 1 is the run at the top
	Below int // how many runs may be below this one, at any depth
}

// Top is where a run is that has no parent.
var Top = Nest{Level: 1, Below: bounds.MaxRunsBelow}

// Child is where the children of a run are. It has one at least.
func (n Nest) Child(p *Plan) Nest {
	runs := p.ChildRuns()
	return Nest{Level: n.Level + 1, Below: max(0, n.Below-runs) / runs}
}

// ChildRuns is how many steps are runs.
func (p *Plan) ChildRuns() (n int) {
	for i := range p.Steps {
		if p.Steps[i].Run != nil {
			n++
		}
	}
	return n
}

// ChildSpec decodes the spec of a child run, and says what is wrong with its fields.
func ChildSpec(run *v1alpha1.ChildRun) (spec v1alpha1.WorkflowRunSpec, problems []string) {
	raw := run.Spec.Raw
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	strict, err := kjson.UnmarshalStrict(raw, &spec)
	if err != nil {
		return v1alpha1.WorkflowRunSpec{}, []string{err.Error()}
	}
	for _, e := range strict {
		problems = append(problems, e.Error())
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"tenant", spec.Tenant != ""},
		{"priority", spec.Priority != 0},
		{"idempotencyKey", spec.IdempotencyKey != ""},
		{"startFrom", spec.StartFrom != nil},
		{"queueTimeoutSeconds", spec.QueueTimeoutSeconds != nil},
		{"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished != nil},
		{"suspend", spec.Suspend},
		{"shutdown", spec.Shutdown != ""},
	} {
		if f.set {
			problems = append(problems, f.name+" is that of the run at the top, a child run cannot have one")
		}
	}
	if len(spec.Locks) > 0 {
		problems = append(problems, ChildLocks(nil))
	}
	if spec.WorkflowRef != nil && saysWork(&spec) {
		problems = append(problems, "steps, finally, outputs, activeDeadlineSeconds, maxParallelSteps and finallyTimeoutSeconds are those of the Workflow: leave them out beside workflowRef")
	}
	if spec.Inputs != nil {
		problems = append(problems, "inputs are given beside spec, in run.inputs")
	}
	return spec, problems
}

// ChildLocks is what is wrong with a child run that has locks, and where they belong. Follows names
// the Workflow that it has them of; nil: its own spec has them.
func ChildLocks(follows *v1alpha1.WorkflowReference) string {
	whose := "locks are"
	if follows != nil {
		whose = fmt.Sprintf("spec.locks: those of Workflow %q are", follows.Name)
	}
	return whose + " not for a child run, which is inside the locks of the runs above it: give them to the step that is the run, as steps[].locks"
}

// saysWork says whether a spec has something that a Workflow has.
func saysWork(spec *v1alpha1.WorkflowRunSpec) bool {
	return len(spec.Steps)+len(spec.Finally) > 0 || spec.Outputs != nil || spec.ActiveDeadlineSeconds != nil ||
		spec.MaxParallelSteps != 0 || spec.FinallyTimeoutSeconds != 0
}

// child checks a step that is a child run, with all that is nested in it.
func (v *validator) child(i int, field string, run *v1alpha1.ChildRun) {
	if v.object(field+".inputs", run.Inputs, bounds.MaxJobInputBytes) {
		names, err := expr.TemplateSteps(bounds.Raw(run.Inputs), v.place(i)...)
		v.references(i, field+".inputs", names, err)
	}
	if v.nest.Level >= maxLevels {
		v.add(field, "nested too deep: a run may have runs below it up to level %d, and this would be level %d", maxLevels, v.nest.Level+1)
		return
	}
	spec, problems := ChildSpec(run)
	for _, problem := range problems {
		v.add(field+".spec", "%s", bounds.Cut(problem, bounds.MaxMessageChars/2))
	}
	for _, problem := range OutOfBounds(&spec) {
		v.problems = append(v.problems, field+"."+problem)
	}
	if len(problems) > 0 || spec.WorkflowRef != nil {
		return
	}
	child := &v1alpha1.WorkflowRun{Spec: spec}
	child.CreationTimestamp = v.run.CreationTimestamp
	p := Of(child)
	problems, whole := validate(child, &p, v.nest.Child(v.plan), v.meter)
	v.unread = v.unread || !whole
	for _, problem := range problems {
		v.problems = append(v.problems, fmt.Sprintf("%s.%s", field, problem))
	}
}
