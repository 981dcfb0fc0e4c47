// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// patterned are n parameters with a pattern.
func patterned(n int, pattern string) (all []v1alpha1.Parameter) {
	for i := range n {
		all = append(all, v1alpha1.Parameter{Name: fmt.Sprint("p", i), Pattern: pattern})
	}
	return all
}

// allocated is how many bytes a call allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// 14 KB of a Workflow took 89 MiB for as long as a replica kept its revision, and 3 s of each pass
// that read it.
//
// mutations: patterns that are compiled without a charge, or each with a budget of its own; a
// budget that tells each pattern that it is spent.
func TestProblems_PatternsAreCompiledWithinABudget(t *testing.T) {
	for name, pattern := range map[string]string{
		"repetitions of letters": strings.Repeat(".{999}", 42),
		"repetitions of words":   `(\pL{30}){33}`,
		"folded letters":         "(?i)" + strings.Repeat("[B-\U000165E2]", 50),
		"classes of letters":     strings.Repeat(`\pL`, 85),
	} {
		t.Run(name, func(t *testing.T) {
			spec := specOf(patterned(50, pattern)...)
			took := allocated(func() {
				c := contentOf(t, spec)
				problems := c.Problems()
				if len(problems) != 1 || !strings.Contains(problems[0], ".pattern: too large") {
					t.Errorf("the Workflow is told %q", problems)
				}
				if _, said := c.Inputs(nil); len(said) != 1 || said[0] != problems[0] {
					t.Errorf("its run is told %q", said)
				}
			})
			if took > 32<<20 { // of one pattern at a time, and nothing is kept
				t.Errorf("%d bytes were allocated", took)
			}
		})
	}
}

// What docs/templates.md says has room.
//
// mutations: a budget of a third; any (?, or any escape after a dash, that counts as a range of
// letters that are folded.
func TestProblems_OfPatternsAsPeopleWriteThem(t *testing.T) {
	for _, pattern := range []string{
		`^[a-z0-9.-]{1,253}$`, `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, `^[^@ ]+@[^@ ]+$`, `(?i)^(select|with) `,
		`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$`, `^\d{4}-\d{2}-\d{2}(?:/\d{4}-\d{2}-\d{2})?$`,
		`^(?P<year>\d{4})-(?P<month>\d{2})$`, `^(?s:[à-ÿ]+)$`, `(?i)^\w{8}-\w{4}-\w{4}-\w{4}-\w{12}$`, `^v?\d+\.\d+\.\d+(?:-\w+)?$`,
		`(?i)^[\w-\.]+@([\w-]+\.)+[\w-]{2,4}$`, `(?i)^[^\x00-\x1f]+$`, `^https?://[\w\-\._~]+(?::\d+)?(?:/[\w\-\._~]*)*$`,
	} {
		spec := specOf(patterned(50, pattern)...)
		if problems := contentOf(t, spec).Problems(); problems != nil {
			t.Errorf("50 times %s: %v", pattern, problems)
		}
	}
	if problems := contentOf(t, specOf(patterned(2, `(?i)^[à-ÿ]+$`)...)).Problems(); problems != nil {
		t.Error(problems)
	}
}

// A match of 60 KiB took 14 s.
//
// mutations: a match that is not charged; values that share their budget with defaults; each value
// with a budget of its own; a match that is charged for all states of a length, or for one
// repetition where there are two.
func TestInputs_AreMatchedWithinABudget(t *testing.T) {
	long := strings.Repeat("a", 60<<10)
	for name, c := range map[string]struct {
		parameters []v1alpha1.Parameter
		value      string // of each
		refused    bool
	}{
		"a long text and a large pattern": {patterned(1, strings.Repeat(".{999}", 5)+"z"), long + "z", true},
		"a long text in many parts":       {patterned(20, `[a-z]{500}z`), long[:1500], true},
		"a long text and a small pattern": {patterned(1, `^[a-z]+$`), long, false},
		"one that is soon found":          {patterned(1, `^aaa|[b-z]{500}z`), long, false},
		"names":                           {patterned(50, `^[a-z0-9.-]{1,63}$`), long[:63], false},
		"long names":                      {patterned(50, `^[a-z0-9.-]{1,253}$`), long[:253], false},
		"a text of a length":              {patterned(1, `^.{1,1000}$`), long[:1000], false},
		"Cyrillic of a length":            {patterned(1, `^.{1,1000}$`), strings.Repeat("я", 1000), false},
		"texts of a length":               {patterned(10, `^.{1,255}$`), long[:255], false},
		"two lengths that overlap":        {patterned(1, `^.{0,500}a.{0,500}$`), long[:1000], true},
	} {
		t.Run(name, func(t *testing.T) {
			var given []string
			for _, p := range c.parameters {
				given = append(given, fmt.Sprintf("%q:%q", p.Name, c.value))
			}
			_, problems := contentOf(t, specOf(c.parameters...)).Inputs(raw("{" + strings.Join(given, ",") + "}"))
			if c.refused && (len(problems) != 1 || !strings.HasPrefix(problems[0], "spec.inputs.p") || !strings.Contains(problems[0], "takes too long to match")) {
				t.Errorf("problems are %.300q", problems)
			}
			if !c.refused && problems != nil {
				t.Errorf("problems are %.300q", problems)
			}
		})
	}
}

// mutations: defaults that are matched without a budget; one budget for defaults and values.
func TestProblems_DefaultsAreMatchedWithinABudget(t *testing.T) {
	long := raw(`"` + strings.Repeat("a", 60<<10) + `"`)
	all := patterned(1, strings.Repeat(".{999}", 5)+"z")
	all[0].Default = long
	problems := contentOf(t, specOf(all...)).Problems()
	if len(problems) != 1 || !strings.HasPrefix(problems[0], "spec.parameters[0].default: takes too long to match") {
		t.Errorf("problems are %.300q", problems)
	}
	all = patterned(1, `^[a-z]+$`)
	all[0].Default = long
	if _, problems := contentOf(t, specOf(all...)).Inputs(raw(`{"p0":` + string(long.Raw) + `}`)); problems != nil {
		t.Errorf("a default takes from the values: %.300q", problems)
	}
}

// A run of 1.4 MB of inputs that nobody knows had a message of 140 MB.
//
// mutations: all of them are told; what is too large is looked at.
func TestInputs_OfManyUnknownSomeAreTold(t *testing.T) {
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf(`"n%04d":1`, i))
	}
	_, problems := contentOf(t, specOf()).Inputs(raw("{" + strings.Join(many, ",") + "}"))
	if len(problems) != maxNamed+1 || problems[maxNamed] != "spec.inputs: and 1990 more that are no parameters" {
		t.Errorf("%d problems, the last is %q", len(problems), problems[len(problems)-1])
	}
	large := raw(`{"x":"` + strings.Repeat("x", 64<<10) + `"}`)
	if inputs, problems := contentOf(t, specOf()).Inputs(large); problems != nil || string(inputs) != string(large.Raw) {
		t.Errorf("inputs that are too large are not left to the core: %.300q", problems)
	}
}

// A run that was initialized is not checked again.
//
// mutations: WithDefaults that takes no default, or replaces what is given.
func TestWithDefaults(t *testing.T) {
	c := contentOf(t, specOf(
		v1alpha1.Parameter{Name: "region", Pattern: "^eu", Default: raw(`"eu-1"`)},
		v1alpha1.Parameter{Name: "count", Type: v1alpha1.ParameterInteger, Required: true},
		v1alpha1.Parameter{Name: "bad", Pattern: "("},
	))
	for given, want := range map[string]string{
		`{}`:                            `{"region":"eu-1"}`,
		`{"region":"us"}`:               `{"region":"us"}`,
		`{"count":"x","other":[1,2.0]}`: `{"count":"x","other":[1,2.0],"region":"eu-1"}`,
		`[1]`:                           `[1]`,
	} {
		if got := string(c.WithDefaults(raw(given))); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
	if got := string(c.WithDefaults(nil)); got != `{"region":"eu-1"}` {
		t.Errorf("no inputs: %s", got)
	}
}
