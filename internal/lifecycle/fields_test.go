// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// mutation: a validation that looks at the names of steps only makes this fail: the mistake is
// found when the work is done.
func TestASpecThatReadsAFieldNoStepHasIsInvalid(t *testing.T) {
	const stepHas = "; it has approval, error, items, output, outputRef, phase"
	const runHas = "; it has name, namespace, tenant, uid, workloadClass"
	for name, c := range map[string]struct {
		outputs, when, finally string
		want                   string // in the message; "": the run begins
	}{
		"outputs":                       {outputs: "${steps.a.outputs.url}", want: `spec.outputs: expression "steps.a.outputs.url": steps.a has no field "outputs"` + stepHas},
		"by index":                      {outputs: `${steps["a"]["outputs"]}`, want: `steps.a has no field "outputs"` + stepHas},
		"of a name with a dash":         {outputs: `${steps["sign-off"].phse}`, want: `steps["sign-off"] has no field "phse"` + stepHas},
		"when":                          {when: `steps.a.state == "Failed"`, want: `spec.steps[2].when: expression "steps.a.state == \"Failed\"": steps.a has no field "state"` + stepHas},
		"a part of a step":              {when: "steps.a.items.failures == 0", want: `steps.a.items has no field "failures"; it has failed, succeeded, total`},
		"run":                           {when: `run.nam == ""`, want: `run has no field "nam" here` + runHas},
		"the end outside of finally":    {when: `run.phase == "Failed"`, want: `run has no field "phase" here` + runHas},
		"the end in outputs":            {outputs: "${run.phase}", want: `run has no field "phase" here` + runHas},
		"the end in finally":            {finally: `run.phase == "Failed" && run.reason != run.message`},
		"a step in finally":             {finally: `steps.a.pase == "Failed"`, want: `spec.finally[0].when: expression "steps.a.pase == \"Failed\"": steps.a has no field "pase"` + stepHas},
		"optional":                      {when: `steps.a.?outputs.orValue("") == "" && run.?phase.orValue("") == ""`},
		"of an optional step":           {when: `steps.?a.outputs.orValue("") == ""`},
		"a question":                    {when: "has(steps.a.outputs) || has(run.phase)"},
		"guarded":                       {when: `has(run.phase) && run.phase == "Failed" || has(steps.a.outputs) && steps.a["outputs"] == 1`},
		"guarded by an optional read":   {when: `run.?phase.hasValue() && run.phase == "" || steps.a.items[?"none"].hasValue() && steps.a.items.none == 1`},
		"guarded by in":                 {when: `"phase" in run && run.phase == "Failed"`},
		"another is guarded":            {when: `has(run.phase) && run.reason == "" && has(steps.a.reason)`, want: `run has no field "reason" here` + runHas},
		"a variable of optMap":          {when: `inputs.?run.optMap(run, run.nmae == 1).orValue(true) && inputs.?s.optFlatMap(steps, steps.a.?b).orValue(true)`},
		"by an index that is computed":  {when: "steps.a[inputs.which] == 1"},
		"an output has any field":       {when: "steps.a.output.outputs == 1"},
		"inputs have any field":         {when: "inputs.outputs == 1"},
		"a variable with the same name": {when: "[inputs].all(run, run.nam == 1) && [inputs].all(steps, steps.a.nam == 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"), newStep("sign-off"), newStep("b", after("a"), func(s *v1alpha1.Step) { s.When = c.when }))
			run.Spec.Outputs = raw(fmt.Sprintf(`{"x": %q}`, c.outputs))
			run.Spec.Finally = []v1alpha1.Step{newStep("f", func(s *v1alpha1.Step) { s.When = c.finally })}
			out := advance(t, run, epoch)
			got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if refused := got.Reason == v1alpha1.ReasonInvalidSpec; refused != (c.want != "") || !strings.Contains(got.Message, c.want) {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
		})
	}
}

// mutation: a field that expressions have and validation does not know, or the other way round,
// makes this fail.
func TestValidationKnowsTheFieldsThatExpressionsHave(t *testing.T) {
	for _, of := range []string{"steps.a", "steps.a.items", "run"} {
		for _, finally := range []bool{false, true} {
			fields, phase := fieldsSeen(t, of, "", finally)
			if phase == v1alpha1.RunFailed || len(fields) < 3 {
				t.Fatalf("%s: %s, %v", of, phase, fields)
			}
			for field := range fields {
				if _, phase := fieldsSeen(t, of, "."+field, finally); phase == v1alpha1.RunFailed {
					t.Errorf("%s.%s is refused, finally %t", of, field, finally)
				}
			}
		}
	}
}

// fieldsSeen is what the input of a step after a has of what it reads, and the phase of the run.
func fieldsSeen(t *testing.T, of, field string, finally bool) (fields map[string]any, phase v1alpha1.RunPhase) {
	t.Helper()
	reads := newStep("b", input(fmt.Sprintf(`{"x": "${%s%s}"}`, of, field)))
	run := newRun(newStep("a", func(s *v1alpha1.Step) { s.ForEach = &v1alpha1.ForEach{Items: "${[]}"} }))
	if finally {
		run.Spec.Finally = []v1alpha1.Step{reads}
	} else {
		reads.DependsOn = []string{"a"}
		run.Spec.Steps = append(run.Spec.Steps, reads)
	}
	out := advance(t, run, epoch)
	for _, d := range out.Dispatch {
		if d.ID.Step != "b" || field != "" {
			continue
		}
		var got struct{ X map[string]any }
		if err := json.Unmarshal(d.Input, &got); err != nil {
			t.Fatal(err)
		}
		fields = got.X
	}
	return fields, out.Status.Phase
}
