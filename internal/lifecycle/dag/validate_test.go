// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
)

// mutation: ValidateAt that asks for a desk each time, or never, that keeps it, or does not rest.
func TestValidateAt_TakesADeskForWhatTakesLong(t *testing.T) {
	var rests, asked, left int
	none := errors.New("there is no desk")
	for name, c := range map[string]struct {
		steps      int
		desk, want error
		asked      int
		time       int // rests until there is none
	}{
		"a short spec":                  {1, none, nil, 0, 1000},
		"a long spec":                   {50, nil, nil, 1, 1000},
		"a long spec without a desk":    {50, none, none, 1, 1000},
		"no time for a long spec":       {50, nil, expr.ErrUnread, 1, 10},
		"what is wrong with a long one": {51, nil, nil, 1, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{}
			for i := range c.steps {
				when := strings.Repeat("[1].map(x, x).size() + ", 40) + "1 > 0"
				if i == 50 {
					when = "steps.nobody.phase == 'Failed'"
				}
				run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: fmt.Sprintf("s%d", i), When: when, Job: &v1alpha1.Job{Topic: "t"}})
			}
			rests, asked, left = 0, 0, 0
			plan := Of(run)
			problems, err := ValidateAt(run, &plan, Top, func() (rest func() bool, leave func(), err error) {
				asked++
				return func() bool { rests++; return rests < c.time }, func() { left++ }, c.desk
			})
			if !errors.Is(err, c.want) || asked != c.asked || (len(problems) == 1) != (c.steps == 51) {
				t.Errorf("%v, %v, asked %d times", problems, err, asked)
			}
			if used := c.asked == 1 && c.desk == nil; used != (left == 1) || used != (rests >= min(50, c.time)) {
				t.Errorf("left %d times after %d rests", left, rests)
			}
		})
	}
}

// mutation: a message without the name that is nearest, or one that names what is far, makes this
// fail.
func TestValidate_NamesWhatMayBeMeant(t *testing.T) {
	job := &v1alpha1.Job{Topic: "t"}
	for name, c := range map[string]struct {
		step    v1alpha1.Step
		outputs string
		want    string
	}{
		"a typo in dependsOn":      {v1alpha1.Step{DependsOn: []string{"fetsh"}}, "", `spec.steps[2].dependsOn[0]: there is no step "fetsh"; is it "fetch"?`},
		"a typo in an expression":  {v1alpha1.Step{DependsOn: []string{"fetch"}, When: "steps.fetc.output"}, "", `spec.steps[2].when: there is no step "fetc"; is it "fetch"?`},
		"a typo in outputs":        {v1alpha1.Step{}, "${steps.parsed.output}", `spec.outputs: there is no step "parsed" in spec.steps; is it "parse"?`},
		"letters in another order": {v1alpha1.Step{DependsOn: []string{"ftech"}}, "", `there is no step "ftech"; is it "fetch"?`},
		"nothing like it":          {v1alpha1.Step{DependsOn: []string{"ghost"}}, "", `spec.steps[2].dependsOn[0]: there is no step "ghost"`},
		"a step that is not meant": {v1alpha1.Step{}, "${steps.clean.output}", `spec.outputs: there is no step "clean" in spec.steps`},
		"a short name":             {v1alpha1.Step{DependsOn: []string{"b"}}, "", `spec.steps[2].dependsOn[0]: there is no step "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			c.step.Name, c.step.Job = "a", job
			run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "fetch", Job: job}, {Name: "parse", Job: job}, c.step}}}
			run.Spec.Finally = []v1alpha1.Step{{Name: "clean", Job: job}}
			run.Spec.Outputs = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"x": %q}`, c.outputs)}
			plan := Of(run)
			problems, _ := Validate(run, &plan, Top, nil)
			if got := strings.Join(problems, "\n"); got != c.want && (!strings.HasPrefix(c.want, "there") || !strings.HasSuffix(got, c.want)) {
				t.Errorf("%s", got)
			}
		})
	}
}
