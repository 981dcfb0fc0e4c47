// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mutation: isSteps without a look at the dot makes the last case fail.
func TestConditionStepsListsWhatIsReadByName(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"a field":                         {"steps.a.output.x == 1", []string{"a"}},
		"an index":                        {`steps["sign-off"].output == 1`, []string{"sign-off"}},
		"several, each once, in order":    {`steps.b.output > steps.a.output && steps.b.output > 0`, []string{"a", "b"}},
		"inside a macro":                  {"[1, 2].exists(i, i == steps.a.output)", []string{"a"}},
		"has() needs the step":            {"has(steps.a.output)", []string{"a"}},
		"an optional read is a question":  {"steps.?a.output.orValue(1) == 1", nil},
		"a computed name cannot be known": {"steps[inputs.which].output == 1", nil},
		"other variables do not count":    {"inputs.steps.a == run.name", nil},
		"beside a local of that name":     {"[0].all(steps, .steps.big.output == 1)", []string{"big"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ConditionSteps(c.src)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateStepsListsThoseOfAllExpressions(t *testing.T) {
	got, err := TemplateSteps([]byte(`{"x": "${steps.b.output} and ${steps.a.output}", "y": ["$${steps.c}", {"z": "${steps.a.phase}"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if _, err := TemplateSteps([]byte(`{"x": "${"}`)); err == nil {
		t.Error("a broken template has no steps")
	}
}
