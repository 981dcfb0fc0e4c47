package lifecycle

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
)

// The patterns of the schema, for objects that did not pass it: a job id or subject made of anything else would be unusable.
var (
	stepName  = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	topicName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)
)

const maxTopicChars = 100

// validate lists what is wrong with a spec, each with its field, in spec order; empty: it can be run.
func validate(spec *v1alpha1.WorkflowRunSpec, p *plan) []string {
	switch n := len(spec.Steps); {
	case n == 0:
		return []string{"spec.steps: at least one step is needed"}
	case n > maxSteps:
		return []string{fmt.Sprintf("spec.steps: %d steps, more than %d", n, maxSteps)}
	}
	if n := specBytes(spec); n > maxSpecBytes {
		return []string{fmt.Sprintf("spec: %d bytes of inputs, expressions and dependencies, more than %d in all", n, maxSpecBytes)}
	}
	v := validator{spec: spec, plan: p}
	v.object("spec.inputs", spec.Inputs, maxInputsBytes)
	for i := range spec.Steps {
		v.step(i)
	}
	v.acyclic()
	return v.problems
}

// specBytes is the size of what makes a spec large.
func specBytes(spec *v1alpha1.WorkflowRunSpec) int {
	n := len(rawOf(spec.Inputs))
	for i := range spec.Steps {
		n += len(spec.Steps[i].When) + len(rawOf(spec.Steps[i].Job.Input))
		for _, name := range spec.Steps[i].DependsOn {
			n += len(name)
		}
	}
	return n
}

type validator struct {
	spec     *v1alpha1.WorkflowRunSpec
	plan     *plan
	problems []string
}

func (v *validator) add(field, format string, args ...any) {
	v.problems = append(v.problems, field+": "+fmt.Sprintf(format, args...))
}

func (v *validator) step(i int) {
	s, field := &v.spec.Steps[i], fmt.Sprintf("spec.steps[%d]", i)
	if !stepName.MatchString(s.Name) {
		v.add(field+".name", "%s is not 1 to 40 of a-z, 0-9 and dashes", quote(s.Name))
	}
	if first := v.plan.index[s.Name]; first != i {
		v.add(field+".name", "%s is already the name of spec.steps[%d]", quote(s.Name), first)
	}
	v.dependencies(field+".dependsOn", s)
	if s.When != "" {
		names, err := expr.ConditionSteps(s.When)
		v.references(i, field+".when", names, err)
	}
	if len(s.Job.Topic) > maxTopicChars || !topicName.MatchString(s.Job.Topic) {
		v.add(field+".job.topic", "%s is not words of a-z, 0-9 and dashes joined by dots, at most %d characters",
			quote(s.Job.Topic), maxTopicChars)
	}
	if v.object(field+".job.input", s.Job.Input, maxJobInputBytes) {
		names, err := expr.TemplateSteps(rawOf(s.Job.Input))
		v.references(i, field+".job.input", names, err)
	}
}

// references checks the steps that an expression reads: only what the step depends on has ended for certain when it starts.
func (v *validator) references(i int, field string, names []string, err error) {
	if err != nil {
		v.add(field, "%v", err)
		return
	}
	if len(names) == 0 {
		return
	}
	ancestors := v.plan.ancestors(i)
	for _, name := range names {
		j, known := v.plan.index[name]
		switch {
		case !known:
			v.add(field, "there is no step %s", quote(name))
		case j == i:
			v.add(field, "the step reads its own state")
		case !slices.Contains(ancestors, j):
			v.add(field, "step %s is read but not depended on; add it to dependsOn", quote(name))
		}
	}
}

func (v *validator) dependencies(field string, s *v1alpha1.Step) {
	seen := make(map[string]bool, len(s.DependsOn))
	for k, name := range s.DependsOn {
		at := fmt.Sprintf("%s[%d]", field, k)
		_, known := v.plan.index[name]
		switch {
		case seen[name]:
			v.add(at, "%s is listed twice", quote(name))
		case name == s.Name:
			v.add(at, "step %s depends on itself", quote(name))
		case !known:
			v.add(at, "there is no step %s", quote(name))
		}
		seen[name] = true
	}
}

// object checks a field that must hold a JSON object of bounded size, and says whether it does.
func (v *validator) object(field string, e *runtime.RawExtension, limit int) bool {
	raw := rawOf(e)
	if len(raw) > limit {
		v.add(field, "%d bytes, more than %d", len(raw), limit)
		return false
	}
	value, err := decodeJSON(raw)
	if err != nil {
		v.add(field, "%v", err)
		return false
	}
	if _, ok := value.(map[string]any); !ok {
		v.add(field, "%s is not a JSON object", quote(string(bytes.TrimSpace(raw))))
		return false
	}
	return true
}

// acyclic reports the first cycle of two steps or more; self-dependencies have a message of their own.
func (v *validator) acyclic() {
	path := v.plan.cycle()
	if len(path) < 3 {
		return
	}
	names := make([]string, 0, len(path))
	for _, i := range path {
		names = append(names, v.spec.Steps[i].Name)
	}
	v.add("spec.steps", "cycle, each step depends on the next: %s", strings.Join(names, " -> "))
}

func quote(s string) string { return fmt.Sprintf("%q", cut(s, maxCodeChars)) }
