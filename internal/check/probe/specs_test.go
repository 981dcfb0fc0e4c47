// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// mutation: kinds without Workflow or Schedule make this fail, and so does a judgement of a spec as
// another place has it.
func TestTheSamplesCanBeJudged(t *testing.T) {
	files, err := filepath.Glob(testenv.Root("config", "samples", "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Manifests(bytes.NewReader(data))
		if err != nil || len(objects) == 0 {
			t.Errorf("%s: %d objects, %v", filepath.Base(name), len(objects), err)
		}
		for _, o := range objects {
			if j := judged(o); len(j.problems)+len(j.idle) > 0 {
				t.Errorf("%s: %+v", filepath.Base(name), j)
			}
		}
	}
}

// mutation: judged that leaves a kind, or a part of it, to the API server makes this fail.
func TestWhatTheOperatorRefusesIsFoundInAManifest(t *testing.T) {
	const cycle = "steps: [{name: a, dependsOn: [b], job: {topic: t}}, {name: b, dependsOn: [a], job: {topic: t}}]"
	const cron = "cron: ['0 1 * * *'], "
	for name, c := range map[string]struct {
		kind, spec, want string
		open             bool // a part of it is elsewhere
	}{
		"a cycle":                  {"WorkflowRun", "{" + cycle + "}", "spec.steps: cycle", false},
		"syntax":                   {"WorkflowRun", `{steps: [{name: a, when: "1 +", job: {topic: t}}]}`, "spec.steps[0].when: ", false},
		"a run of a Workflow":      {"WorkflowRun", "{workflowRef: {name: w}}", "", true},
		"a Workflow":               {"Workflow", "{template: {" + cycle + "}}", "spec.template.steps: cycle", false},
		"a Workflow's inputs":      {"Workflow", `{parameters: [{name: num}], template: {steps: [{name: a, when: "inputs.m == 1", job: {topic: t}}]}}`, `inputs has no field "m"; it has num`, false},
		"without parameters":       {"Workflow", `{template: {steps: [{name: a, when: "inputs.m == 1", job: {topic: t}}]}}`, `inputs has no field "m"; it has none`, false},
		"a time that has passed":   {"WorkflowRun", "{steps: [{name: a, delay: {until: '2020-01-01T00:00:00Z'}}]}", "spec.steps[0].delay", false},
		"of a run that goes on":    {"WorkflowRun", "{startFrom: {run: r, uid: u}, steps: [{name: a, delay: {until: '2020-01-01T00:00:00Z'}}]}", "", false},
		"of a Schedule's run":      {"Schedule", "{" + cron + "runTemplate: {spec: {steps: [{name: a, delay: {until: '2020-01-01T00:00:00Z'}}]}}}", "", false},
		"of a run below a run":     {"WorkflowRun", "{steps: [{name: a, run: {spec: {steps: [{name: b, delay: {until: '2020-01-01T00:00:00Z'}}]}}}]}", "spec.steps[0].run.spec.steps[0].delay", false},
		"of a Workflow's run":      {"Workflow", "{template: {steps: [{name: a, delay: {until: '2020-01-01T00:00:00Z'}}]}}", "", false},
		"a value of a Schedule":    {"Schedule", "{" + cron + "runTemplate: {spec: {maxParallelSteps: 500, steps: [{name: a, job: {topic: t}}]}}}", "spec.runTemplate.spec.maxParallelSteps: 500 is not in 1..200", false},
		"a Schedule's priority":    {"Schedule", "{" + cron + "runTemplate: {spec: {priority: 5000000, steps: [{name: a, job: {topic: t}}]}}}", "spec.runTemplate.spec.priority: 5000000 is not in -1000000..1000000", false},
		"a Schedule's tenant":      {"Schedule", "{" + cron + "runTemplate: {spec: {tenant: 'Bad Name!', steps: [{name: a, job: {topic: t}}]}}}", `spec.runTemplate.spec.tenant: "Bad Name!" is not what`, false},
		"a Schedule's queue":       {"Schedule", "{" + cron + "runTemplate: {spec: {queueTimeoutSeconds: 0, steps: [{name: a, job: {topic: t}}]}}}", "spec.runTemplate.spec.queueTimeoutSeconds: 0 is not in 1..31536000", false},
		"permits of a Schedule":    {"Schedule", "{" + cron + "runTemplate: {spec: {locks: [{semaphore: s, permits: 1000000}], steps: [{name: a, job: {topic: t}}]}}}", "spec.runTemplate.spec.locks: 1000000 permits, more than 100000", false},
		"a value of a child run":   {"Workflow", "{template: {steps: [{name: a, run: {spec: {steps: [{name: b, onFailure: continue, job: {topic: t}}]}}}]}}", `spec.template.steps[0].run.spec.steps[0].onFailure: "continue" is not one of FailRun, Continue`, false},
		"a Workflow's parameters":  {"Workflow", `{parameters: [{name: num, pattern: "("}], template: {steps: [{name: a, job: {topic: t}}]}}`, "spec.parameters[0].pattern", false},
		"a Schedule":               {"Schedule", "{" + cron + "runTemplate: {spec: {" + cycle + "}}}", "spec.runTemplate.spec.steps: cycle", false},
		"a Schedule's field":       {"Schedule", "{" + cron + "runTemplate: {spec: {step: []}}}", `unknown field "step"`, false},
		"a field of one run":       {"Schedule", "{" + cron + "runTemplate: {spec: {suspend: true}}}", "a schedule has no suspend", false},
		"a Schedule's time":        {"Schedule", "{cron: ['61 1 * * *'], runTemplate: {spec: {workflowRef: {name: w}}}}", "spec.cron[0]", true},
		"a Schedule's end":         {"Schedule", "{" + cron + "stopWhen: '1 +', runTemplate: {spec: {workflowRef: {name: w}}}}", "spec.stopWhen", true},
		"a Schedule of a Workflow": {"Schedule", "{" + cron + "runTemplate: {spec: {workflowRef: {name: w}}}}", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Manifests(strings.NewReader("apiVersion: syncopate.dev/v1alpha1\nmetadata: {name: a}\nkind: " + c.kind + "\nspec: " + c.spec))
			if err != nil || len(objects) != 1 {
				t.Fatalf("%d objects, %v", len(objects), err)
			}
			j := judged(objects[0])
			if got := strings.Join(j.problems, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || j.open != c.open {
				t.Errorf("%q, a part of it is elsewhere: %t", got, j.open)
			}
		})
	}
}

// Who made a Schedule counts with its template.
//
// mutation: judged that gives the spec of a Schedule alone makes this fail.
func TestWhoMadeAScheduleCountsInAManifest(t *testing.T) {
	s := &v1alpha1.Schedule{}
	s.Spec.Cron = []string{"0 1 * * *"}
	s.Spec.RunTemplate.Spec.Raw = []byte(`{"inputs":{"pad":"` + strings.Repeat("x", 300<<10) + `"},"workflowRef":{"name":"w"}}`)
	s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: strings.Repeat("e", 200<<10)}
	if j := judged(s); len(j.problems) > 0 {
		t.Errorf("one that fits: %q", j.problems)
	}
	s.Annotations[v1alpha1.AnnotationCreatedBy] = strings.Repeat("e", 250<<10)
	j := judged(s)
	if got := strings.Join(j.problems, "; "); !strings.Contains(got, "and who made the schedule (syncopate.dev/created-by), are more than 524288") {
		t.Errorf("one that does not: %q", got)
	}
}

// mutation: judged that does not look for fields of jobs in one of the kinds makes this fail.
func TestFieldsThatDoNothingAreFoundInAManifest(t *testing.T) {
	const steps = "steps: [{name: a, job: {topic: t}, timeoutSeconds: 60}, {name: b, approval: {}, timeoutSeconds: 60}]"
	const says = "steps[1].timeoutSeconds: it is for jobs; an approval has approval.timeoutSeconds"
	for kind, c := range map[string]struct{ spec, want string }{
		"WorkflowRun": {"{" + steps + "}", "spec." + says},
		"Workflow":    {"{template: {" + steps + "}}", "spec.template." + says},
		"Schedule":    {"{cron: ['0 1 * * *'], runTemplate: {spec: {" + steps + "}}}", "spec.runTemplate.spec." + says},
		"Semaphore":   {"{permits: 1}", ""},
	} {
		objects, err := Manifests(strings.NewReader("apiVersion: syncopate.dev/v1alpha1\nmetadata: {name: a}\nkind: " + kind + "\nspec: " + c.spec))
		if err != nil || len(objects) != 1 {
			t.Fatalf("%s: %d objects, %v", kind, len(objects), err)
		}
		if j := judged(objects[0]); strings.Join(j.idle, "; ") != c.want || len(j.problems) > 0 {
			t.Errorf("%s: %+v", kind, j)
		}
	}
}
