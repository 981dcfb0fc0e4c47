// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
)

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func specOf(parameters ...v1alpha1.Parameter) *v1alpha1.WorkflowSpec {
	return &v1alpha1.WorkflowSpec{
		Parameters: parameters,
		Template: v1alpha1.WorkflowTemplate{
			Steps: []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t", Input: raw(`{"b":1.0,"a":"${inputs.region}"}`)}}},
		},
	}
}

func contentOf(t *testing.T, spec *v1alpha1.WorkflowSpec) *Content {
	t.Helper()
	data, revision, err := Encode(spec)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Decode("report", revision, data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestInputs_EachProblemHasItsField(t *testing.T) {
	all := specOf(
		v1alpha1.Parameter{Name: "region", Required: true, Enum: []string{"eu", "us"}},
		v1alpha1.Parameter{Name: "count", Type: v1alpha1.ParameterInteger, Default: raw("3")},
		v1alpha1.Parameter{Name: "share", Type: v1alpha1.ParameterNumber},
		v1alpha1.Parameter{Name: "dry", Type: v1alpha1.ParameterBoolean, Default: raw("false")},
		v1alpha1.Parameter{Name: "mail", Pattern: "^[a-z]+@"},
		v1alpha1.Parameter{Name: "more", Type: v1alpha1.ParameterObject},
		v1alpha1.Parameter{Name: "list", Type: v1alpha1.ParameterArray},
	)
	for name, c := range map[string]struct {
		given    string
		inputs   string
		problems []string
	}{
		"defaults are added":         {given: `{"region":"eu"}`, inputs: `{"count":3,"dry":false,"region":"eu"}`},
		"what is given wins":         {given: `{"region":"us","count":4,"dry":true}`, inputs: `{"region":"us","count":4,"dry":true}`},
		"a whole number is a number": {given: `{"region":"eu","share":1,"count":1,"dry":true}`, inputs: `{"region":"eu","share":1,"count":1,"dry":true}`},
		"large numbers stay":         {given: `{"region":"eu","count":9007199254740993}`, inputs: `{"count":9007199254740993,"dry":false,"region":"eu"}`},
		"missing":                    {given: `{}`, problems: []string{"spec.inputs.region: Workflow report requires this string"}},
		"unknown": {given: `{"region":"eu","regoin":"eu"}`, problems: []string{
			"spec.inputs.regoin: Workflow report has no such parameter; it has region, count, share, dry, mail, more, list",
		}},
		"not in enum":      {given: `{"region":"mars"}`, problems: []string{`spec.inputs.region: "mars" is not one of eu, us`}},
		"no match":         {given: `{"region":"eu","mail":"1@x"}`, problems: []string{`spec.inputs.mail: "1@x" does not match ^[a-z]+@`}},
		"a text":           {given: `{"region":"eu","count":"3"}`, problems: []string{"spec.inputs.count: is of type string, and has to be of type integer"}},
		"a fraction":       {given: `{"region":"eu","count":3.5}`, problems: []string{"spec.inputs.count: is of type number, and has to be of type integer"}},
		"beyond 64 bits":   {given: `{"region":"eu","count":9223372036854775808}`, problems: []string{"spec.inputs.count: is of type number, and has to be of type integer"}},
		"null":             {given: `{"region":null}`, problems: []string{"spec.inputs.region: is of type null, and has to be of type string"}},
		"a list":           {given: `{"region":"eu","more":[]}`, problems: []string{"spec.inputs.more: is of type array, and has to be of type object"}},
		"several":          {given: `{"count":"3","x":1,"region":"eu"}`, problems: []string{"spec.inputs.count: is of type string, and has to be of type integer", "spec.inputs.x: Workflow report has no such parameter; it has region, count, share, dry, mail, more, list"}},
		"no object at all": {given: `[1]`, problems: []string{"spec.inputs: not a JSON object"}},
	} {
		t.Run(name, func(t *testing.T) {
			inputs, problems := contentOf(t, all).Inputs(raw(c.given))
			if diff := cmp.Diff(c.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if c.problems == nil && string(inputs) != c.inputs {
				t.Errorf("inputs are %s, want %s", inputs, c.inputs)
			}
		})
	}
}

func TestInputs_WithoutParametersNoneIsAllowed(t *testing.T) {
	c := contentOf(t, specOf())
	if _, problems := c.Inputs(nil); problems != nil {
		t.Error(problems)
	}
	_, problems := c.Inputs(raw(`{"a":1}`))
	if diff := cmp.Diff([]string{"spec.inputs.a: Workflow report has no such parameter, it has none"}, problems); diff != "" {
		t.Error(diff)
	}
}

func TestInputs_AMessageListsSomeOfManyParameters(t *testing.T) {
	var many []v1alpha1.Parameter
	for _, r := range "abcdefghijklmn" {
		many = append(many, v1alpha1.Parameter{Name: string(r)})
	}
	_, problems := contentOf(t, specOf(many...)).Inputs(raw(`{"z":1}`))
	if len(problems) != 1 || !strings.HasSuffix(problems[0], "it has a, b, c, d, e, f, g, h, i, j, ...") {
		t.Error(problems)
	}
}

// Bad parameters are told with their field, to whoever wrote the Workflow and to whoever runs it.
func TestProblems_OfParameters(t *testing.T) {
	c := contentOf(t, specOf(
		v1alpha1.Parameter{Name: "a", Pattern: "("},
		v1alpha1.Parameter{Name: "b", Type: v1alpha1.ParameterInteger, Default: raw(`"x"`)},
		v1alpha1.Parameter{Name: "c", Enum: []string{"x"}, Default: raw(`"y"`)},
	))
	want := []string{
		"spec.parameters[0].pattern: error parsing regexp: missing closing ): `(`",
		"spec.parameters[1].default: is of type string, and has to be of type integer",
		`spec.parameters[2].default: "y" is not one of x`,
	}
	if diff := cmp.Diff(want, c.Problems()); diff != "" {
		t.Error(diff)
	}
	if _, problems := c.Inputs(nil); len(problems) != 3 {
		t.Errorf("a run is told of %v", problems)
	}
}

func TestRevision_IsOfTheContentAlone(t *testing.T) {
	base := contentOf(t, specOf())
	for name, c := range map[string]struct {
		change func(*v1alpha1.WorkflowSpec)
		same   bool
	}{
		"other text of the same JSON": {func(s *v1alpha1.WorkflowSpec) {
			s.Template.Steps[0].Job.Input = raw(`{ "a":"${inputs.region}", "b":1 }`)
		}, true},
		"another history limit": {func(s *v1alpha1.WorkflowSpec) { s.RevisionHistoryLimit = new(int32) }, true},
		"another topic":         {func(s *v1alpha1.WorkflowSpec) { s.Template.Steps[0].Job.Topic = "u" }, false},
		"another parameter":     {func(s *v1alpha1.WorkflowSpec) { s.Parameters = []v1alpha1.Parameter{{Name: "x"}} }, false},
		"a description":         {func(s *v1alpha1.WorkflowSpec) { s.Template.MaxParallelSteps = 3 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			spec := specOf()
			c.change(spec)
			if got := contentOf(t, spec); (got.Revision == base.Revision) != c.same {
				t.Errorf("revisions %s and %s", base.Revision, got.Revision)
			}
		})
	}
}

// A Workflow from before the rules of the API refused such times: it has a revision, so that
// somebody can say what is wrong with it.
//
// mutations: Encode without writable, writable without finally, withWritable that changes the spec,
// and one that takes the first step's time alone make this fail.
func TestRevision_OfATimeThatCannotBeWritten(t *testing.T) {
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*60*60))
	spec := specOf()
	wait := v1alpha1.Step{Name: "b", Delay: &v1alpha1.Delay{Until: &metav1.Time{Time: late}}}
	other, last := wait, wait
	other.Name, last.Name = "c", "d"
	spec.Template.Steps, spec.Template.Finally = append(spec.Template.Steps, wait, other), []v1alpha1.Step{last}
	was := spec.DeepCopy()
	c := contentOf(t, spec)
	if !apiequality.Semantic.DeepEqual(spec, was) {
		t.Error("the Workflow was changed")
	}
	run := c.Effective(&v1alpha1.WorkflowRun{}, []byte("{}"))
	plan := dag.Of(run)
	problems, _ := dag.Validate(run, &plan, dag.Top, nil)
	for _, field := range []string{"spec.steps[1]", "spec.steps[2]", "spec.finally[0]"} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, field+".delay.until: it is not in the years") }) {
			t.Errorf("nothing is said of %s: %q", field, problems)
		}
	}
}

func TestDecode_TakesNoOtherContent(t *testing.T) {
	data, revision, err := Encode(specOf())
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(data), `"topic":"t"`, `"topic":"u"`, 1)
	for name, text := range map[string]string{"forged": forged, "not JSON": "{", "of another shape": "[]"} {
		if _, err := Decode("report", revision, []byte(text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := Decode("report", hash([]byte(`{"template":[]}`)), []byte(`{"template":[]}`)); err == nil {
		t.Error("a template that is a list is taken")
	}
	if _, err := Decode("report", revision, append([]byte(" "), data...)); err != nil {
		t.Errorf("the same content in other words: %v", err)
	}
}

func TestEffective_IsTheRunWithTheTemplate(t *testing.T) {
	spec := specOf(v1alpha1.Parameter{Name: "region", Default: raw(`"eu"`)})
	spec.Template.ActiveDeadlineSeconds, spec.Template.Outputs = new(int32), raw(`{"o":1}`)
	spec.Template.Locks, spec.Template.Finally = []v1alpha1.LockRequest{{Mutex: "m"}}, []v1alpha1.Step{{Name: "f"}}
	c := contentOf(t, spec)
	run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{
		WorkloadClass: "batch", Priority: 7, MaxParallelSteps: 20, WorkflowRef: &v1alpha1.WorkflowReference{Name: "report"},
	}}
	before, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	inputs, _ := c.Inputs(run.Spec.Inputs)
	got := c.Effective(run, inputs).Spec
	want := v1alpha1.WorkflowRunSpec{
		WorkloadClass: "batch", Priority: 7, WorkflowRef: run.Spec.WorkflowRef, MaxParallelSteps: 20, FinallyTimeoutSeconds: 300,
		ActiveDeadlineSeconds: new(int32), Outputs: raw(`{"o":1}`), Locks: spec.Template.Locks, Finally: spec.Template.Finally,
		Steps: c.template.Steps, Inputs: raw(`{"region":"eu"}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("effective spec (-want +got):\n%s", diff)
	}
	if after, _ := json.Marshal(run); string(after) != string(before) {
		t.Error("the run was changed")
	}
}

// No content makes Decode or Inputs panic.
func FuzzContent(f *testing.F) {
	data, _, err := Encode(specOf(v1alpha1.Parameter{Name: "region", Pattern: "^e", Default: raw(`"eu"`)}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, []byte(`{"region":"us"}`))
	f.Add([]byte(`{"parameters":[{"name":"a","pattern":"("}],"template":{"steps":null}}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, data, inputs []byte) {
		c, err := Decode("w", hash(data), data)
		if err != nil {
			return
		}
		given, _ := c.Inputs(&runtime.RawExtension{Raw: inputs})
		c.Effective(&v1alpha1.WorkflowRun{}, given)
	})
}
