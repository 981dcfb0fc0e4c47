// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestValidate(t *testing.T) {
	raw := func(s string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(s)} }
	topic := func(s string) stepOption { return func(st *v1alpha1.Step) { st.Job.Topic = s } }
	many := make([]v1alpha1.Step, bounds.MaxSteps+1)
	for i := range many {
		many[i] = newStep(fmt.Sprint("s", i))
	}
	bulky := make([]v1alpha1.Step, 9) // each within its own bound
	for i := range bulky {
		bulky[i] = newStep(fmt.Sprint("s", i), input(`{"x":"`+strings.Repeat("x", 60<<10)+`"}`))
	}
	tests := map[string]struct {
		steps  []v1alpha1.Step
		inputs *runtime.RawExtension
		want   []string // parts of the message, each naming field and reason
	}{
		"a good one":           {steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), when("true"))}},
		"no steps":             {want: []string{"spec.steps: at least one"}},
		"too many steps":       {steps: many, want: []string{"spec.steps: 201 steps, those of spec.finally included, more than 200"}},
		"duplicate names":      {steps: []v1alpha1.Step{newStep("a"), newStep("a")}, want: []string{`spec.steps[1].name: "a" is already the name of spec.steps[0]`}},
		"a bad name":           {steps: []v1alpha1.Step{newStep("A b")}, want: []string{`spec.steps[0].name: "A b"`}},
		"an unknown step":      {steps: []v1alpha1.Step{newStep("a", after("x"))}, want: []string{`spec.steps[0].dependsOn[0]: there is no step "x"`}},
		"itself":               {steps: []v1alpha1.Step{newStep("a", after("a"))}, want: []string{`spec.steps[0].dependsOn[0]: step "a" depends on itself`}},
		"twice":                {steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a", "a"))}, want: []string{`spec.steps[1].dependsOn[1]: "a" is listed twice`}},
		"a cycle":              {steps: []v1alpha1.Step{newStep("z"), newStep("a", after("b")), newStep("b", after("c")), newStep("c", after("z", "a"))}, want: []string{"a -> b -> c -> a"}},
		"a bad topic":          {steps: []v1alpha1.Step{newStep("a", topic("a..b"))}, want: []string{`spec.steps[0].job.topic: "a..b"`}},
		"a wildcard topic":     {steps: []v1alpha1.Step{newStep("a", topic("a.>"))}, want: []string{`spec.steps[0].job.topic: "a.>"`}},
		"a bad condition":      {steps: []v1alpha1.Step{newStep("a", when("1 +"))}, want: []string{"spec.steps[0].when: ", "1 +"}},
		"a condition not bool": {steps: []v1alpha1.Step{newStep("a", when("'x'"))}, want: []string{"spec.steps[0].when: "}},
		"a bad template":       {steps: []v1alpha1.Step{newStep("a", input(`{"x":["${1 +}"]}`))}, want: []string{"spec.steps[0].job.input: ", "1 +"}},
		"large inputs":         {steps: []v1alpha1.Step{newStep("a")}, inputs: raw(`{"x":"` + strings.Repeat("x", bounds.MaxInputsBytes) + `"}`), want: []string{"spec.inputs: 65544 bytes, more than 65536"}},
		"a large input":        {steps: []v1alpha1.Step{newStep("a", input(`{"x":"`+strings.Repeat("x", bounds.MaxJobInputBytes)+`"}`))}, want: []string{"spec.steps[0].job.input: 65544 bytes"}},
		"inputs of no JSON":    {steps: []v1alpha1.Step{newStep("a")}, inputs: raw(`{"x":`), want: []string{"spec.inputs: not JSON"}},
		"inputs of no object":  {steps: []v1alpha1.Step{newStep("a")}, inputs: raw(`[1]`), want: []string{"spec.inputs: "}},
		"a read of no step":    {steps: []v1alpha1.Step{newStep("a", when("steps.x.output == 1"))}, want: []string{`spec.steps[0].when: there is no step "x"`}},
		"a read of itself":     {steps: []v1alpha1.Step{newStep("a", input(`{"x":"${steps.a.output}"}`))}, want: []string{"spec.steps[0].job.input: the step reads its own state"}},
		"a read of a stranger": {steps: []v1alpha1.Step{newStep("a"), newStep("b", input(`{"x":"${steps.a.output}"}`))}, want: []string{`spec.steps[1].job.input: step "a" is read but not depended on`}},
		"a read of ancestors":  {steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a")), newStep("c", after("b"), input(`{"x":"${steps.a.phase}", "y":"${steps.?z}"}`))}},
		"too large altogether": {steps: bulky, want: []string{"spec: ", "more than 524288 in all"}},
		"several at once":      {steps: []v1alpha1.Step{newStep("a", after("x"), when("("))}, want: []string{"dependsOn[0]", "when"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(tt.steps...)
			run.Spec.Inputs = tt.inputs
			out := decideAt(run, epoch, held(1))
			c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if tt.want == nil {
				if c.Reason != v1alpha1.ReasonRunning {
					t.Errorf("reason %s: %s", c.Reason, c.Message)
				}
				return
			}
			if c.Reason != v1alpha1.ReasonInvalidSpec || len(out.Dispatch) > 0 {
				t.Errorf("reason %s, dispatched %d", c.Reason, len(out.Dispatch))
			}
			for _, part := range tt.want {
				if !strings.Contains(c.Message, part) {
					t.Errorf("message %q does not name %q", c.Message, part)
				}
			}
		})
	}
}
