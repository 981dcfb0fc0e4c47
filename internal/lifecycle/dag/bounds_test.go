// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// nestedProblems is what is wrong with a run that has a child run of that spec.
func nestedProblems(t *testing.T, spec any) []string {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	run := &v1alpha1.WorkflowRun{}
	run.Spec.Steps = []v1alpha1.Step{{Name: "below", Run: &v1alpha1.ChildRun{Spec: runtime.RawExtension{Raw: raw}}}}
	plan := Of(run)
	problems, _ := Validate(run, &plan, Top, nil)
	return problems
}

// A typo in a child run was found when that was created, maybe hours after the run began.
//
// mutation: child that does not look for values out of bounds.
func TestAValueThatAChildRunMayNotHaveIsFoundAtOnce(t *testing.T) {
	for want, spec := range map[string]string{
		`spec.steps[0].run.spec.steps[0].onFailure: "continue" is not one of FailRun, Continue`:                    `{"steps":[{"name":"a","onFailure":"continue","job":{"topic":"t"}}]}`,
		`spec.steps[0].run.spec.maxParallelSteps: 500 is not in 1..200`:                                            `{"maxParallelSteps":500,"steps":[{"name":"a","job":{"topic":"t"}}]}`,
		`spec.steps[0].run.spec.finally[0].retry.maxFailures: -1 is not in 1..1000`:                                `{"steps":[{"name":"a","job":{"topic":"t"}}],"finally":[{"name":"f","retry":{"maxFailures":-1},"job":{"topic":"t"}}]}`,
		`spec.steps[0].run.spec.steps[0].run.spec.steps[0].approval.onTimeout: "no" is not one of Approve, Reject`: `{"steps":[{"name":"a","run":{"spec":{"steps":[{"name":"b","approval":{"onTimeout":"no"}}]}}}]}`,
		`spec.steps[0].run.spec.workflowRef.name: "W" is not what a name of that kind is made of`:                  `{"workflowRef":{"name":"W"}}`,
		``: `{"steps":[{"name":"a","onFailure":"Continue","retry":{"maxFailures":1000,"backoff":{"initialMillis":0}},"job":{"topic":"t"}}],"maxParallelSteps":0}`,
	} {
		if got := strings.Join(nestedProblems(t, json.RawMessage(spec)), "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", spec, got, want)
		}
	}
}

// notOfChildren are fields that ChildSpec refuses, and not of the spec of a child run those that
// the API server makes a run of.
var notOfChildren = []string{
	"tenant", "priority", "idempotencyKey", "startFrom", "queueTimeoutSeconds", "ttlSecondsAfterFinished", "locks", "suspend", "shutdown", "inputs",
}

// Each bound of the schema of a WorkflowRun is one of a child run.
//
// mutation: OutOfBounds without one of its lines, or a bound that is added to the schema alone.
func TestAChildRunHasTheBoundsOfTheSchema(t *testing.T) {
	spec := schemaOfRuns(t)
	for _, name := range notOfChildren {
		delete(spec.Properties, name)
	}
	checked := 0
	spec.walk(nil, func(path []string, value any, why string) {
		checked++
		at := "spec.steps[0].run.spec." + strings.Join(path, ".")
		at, _, _ = strings.Cut(at, "locks[0]") // what is wrong with a lock is said of all of them
		problems := nestedProblems(t, withValue(path, value))
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, at) }) {
			t.Errorf("%s %s: %q", at, why, problems)
		}
	})
	if t.Logf("%d bounds", checked); checked < 60 {
		t.Errorf("only %d bounds are checked", checked)
	}
}

// notInSchedules are fields that schedule.RunSpec refuses, and one without bounds in the schema.
var notInSchedules = []string{"idempotencyKey", "startFrom", "ttlSecondsAfterFinished", "suspend", "shutdown", "inputs"}

// Likewise of a run that a Schedule makes, which is at the top. Before it is made nobody else finds
// what the API server will refuse.
//
// mutation: OutOfBounds without the tenant, the priority, the queueTimeoutSeconds, or the locks of
// the run makes this fail.
func TestARunOfAScheduleHasTheBoundsOfTheSchema(t *testing.T) {
	spec := schemaOfRuns(t)
	for _, name := range notInSchedules {
		delete(spec.Properties, name)
	}
	spec.walk(nil, func(path []string, value any, why string) {
		raw, err := json.Marshal(withValue(path, value))
		if err != nil {
			t.Fatal(err)
		}
		run := &v1alpha1.WorkflowRun{}
		if err := json.Unmarshal(raw, &run.Spec); err != nil {
			t.Fatal(err)
		}
		plan := Of(run)
		problems, _ := Validate(run, &plan, Top, nil)
		problems = append(problems, OutOfBounds(&run.Spec)...)
		at, _, _ := strings.Cut("spec."+strings.Join(path, "."), "locks[0]")
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, at) }) {
			t.Errorf("%s %s: %q", at, why, problems)
		}
	})
}

// schemaOfRuns is the schema of spec.
func schemaOfRuns(t *testing.T) *schemaNode {
	t.Helper()
	raw, err := os.ReadFile("../../../config/crd/bases/syncopate.dev_workflowruns.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schemaNode }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

// schemaNode is what is looked at of a schema.
type schemaNode struct {
	Properties           map[string]*schemaNode
	Items                *schemaNode
	Enum                 []any
	Type, Pattern        string
	Minimum, Maximum     *int64
	MinLength, MaxLength *int
	MaxItems             *int
}

// walk calls found with values that the schema refuses, at each of its fields.
func (n *schemaNode) walk(path []string, found func(path []string, value any, why string)) {
	if slices.Contains(path, "run") || slices.Contains(path, "finally[0]") && slices.Contains(path, "approval") {
		return // what is below the one is checked as a spec of its own; the other may not be there
	}
	for name, below := range n.Properties {
		below.walk(append(slices.Clone(path), name), found)
	}
	if len(n.Enum) > 0 {
		found(path, "nonsense", "enum")
	}
	n.walkNumbers(path, found)
	n.walkTexts(path, found)
	if n.Items == nil {
		return
	}
	if n.MaxItems != nil {
		found(path, many(n.Items, *n.MaxItems+1), "maxItems")
	}
	in := slices.Clone(path)
	in[len(in)-1] += "[0]"
	n.Items.walk(in, found)
}

func (n *schemaNode) walkNumbers(path []string, found func(path []string, value any, why string)) {
	if n.Maximum != nil {
		found(path, *n.Maximum+1, "maximum")
	}
	if n.Minimum != nil {
		found(path, min(*n.Minimum-2, max(*n.Minimum-2, -1)), "minimum")
	}
}

func (n *schemaNode) walkTexts(path []string, found func(path []string, value any, why string)) {
	if n.MaxLength != nil {
		found(path, strings.Repeat("a", *n.MaxLength+1), "maxLength")
	}
	if n.Pattern != "" {
		found(path, "No name!", "pattern")
	}
	if n.MinLength != nil && strings.HasSuffix(path[len(path)-1], "[0]") {
		found(path, "", "minLength") // elsewhere an empty text is none
	}
}

// many is a list of so many items that are fine.
func many(of *schemaNode, n int) (all []any) {
	for i := range n {
		switch {
		case of.Type == "string":
			all = append(all, fmt.Sprintf("x%d", i))
		case of.Properties["mutex"] != nil:
			all = append(all, map[string]any{"mutex": fmt.Sprintf("x%d", i)})
		default:
			all = append(all, map[string]any{"name": fmt.Sprintf("x%d", i), "job": map[string]any{"topic": "t"}})
		}
	}
	return all
}

// withValue is a spec that is fine but for the value at a path.
func withValue(path []string, value any) map[string]any {
	step := func(name string) map[string]any {
		return map[string]any{"name": name, "job": map[string]any{"topic": "t"}}
	}
	first, last := step("a"), step("f")
	spec := map[string]any{"steps": []any{first}, "finally": []any{last}}
	if path[0] == "workflowRef" { // beside it there are no steps
		spec = map[string]any{"workflowRef": map[string]any{"name": "w"}}
	}
	for _, kind := range []string{"approval", "delay"} {
		if slices.Contains(path, kind) {
			step := map[string]map[string]any{"steps[0]": first, "finally[0]": last}[path[0]]
			delete(step, "job")
		}
	}
	in := spec
	for _, name := range path[:len(path)-1] {
		in = below(in, name)
	}
	name, isItem := strings.CutSuffix(path[len(path)-1], "[0]")
	if in[name] = value; isItem {
		in[name] = []any{value}
	}
	return spec
}

// below is the object at a field, which is made where it is not there.
func below(in map[string]any, name string) map[string]any {
	name, isItem := strings.CutSuffix(name, "[0]")
	if !isItem {
		next, ok := in[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			in[name] = next
		}
		return next
	}
	items, ok := in[name].([]any)
	if !ok {
		items = []any{map[string]any{}}
		if name == "locks" { // one that is fine but for the value
			items = []any{map[string]any{"semaphore": "s"}}
		}
		in[name] = items
	}
	next, _ := items[0].(map[string]any)
	return next
}
